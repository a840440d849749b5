"""Patterns: how a user says which variables are meant."""

import re
from collections.abc import Iterable, Set
from typing import Any

from tf_gc.params.compression import Gradient, Pattern


class Patterns(tuple[Pattern, ...]):
    """Patterns as a value that can be compared, hashed and printed.

    It prints a function by its name and not by its address, which differs from worker to worker.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        inside = ", ".join(map(name_of, self))
        return f"({inside},)" if len(self) == 1 else f"({inside})"


def check_patterns(argument: str, patterns: Any) -> Patterns:
    """Returns the patterns that an argument stands for: one, or several of them.

    Args:
      argument: the argument's name, for errors.
      patterns: a pattern, or an iterable of patterns.

    Raises:
      ValueError: if a string is empty or no regular expression.
      TypeError: if something is neither a string nor a function.
    """
    several = (patterns,)
    if isinstance(patterns, Iterable) and not isinstance(patterns, str | bytes | type):
        several = tuple(patterns)
    for pattern in several:
        _check(argument, pattern)
    if isinstance(patterns, Set):  # whose order differs from process to process
        several = tuple(sorted(several, key=name_of))
    return Patterns(several)


def matches(pattern: Pattern, gradient: Gradient) -> bool:
    """Returns whether a pattern means the variable of a gradient.

    Args:
      pattern: a regular expression, which is searched for anywhere in the variable's path, as
        Keras does in `exclude_from_weight_decay`; or a function of the gradient.
      gradient: what is known of the gradient.
    """
    if isinstance(pattern, str):
        return re.search(pattern, gradient.path) is not None
    return bool(pattern(gradient))


def name_of(pattern: Pattern) -> str:
    """Returns a pattern as text: a string in quotes, a function by module and name."""
    if isinstance(pattern, str):
        return repr(pattern)
    named = pattern if hasattr(pattern, "__qualname__") else type(pattern)
    return f"{named.__module__}.{named.__qualname__}"


def _check(argument: str, pattern: Any) -> None:
    if isinstance(pattern, str):
        if not pattern:
            raise ValueError(f"{argument} has the pattern '', which would match every variable")
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(
                f"{argument} has the pattern {pattern!r}, which is no regular expression: {error}"
            ) from None
    elif not callable(pattern) or isinstance(pattern, type):
        raise TypeError(
            f"{argument} takes regular expressions that are searched for in the paths of variables "
            f"and functions of a tf_gc.params.Gradient, got {pattern!r}"
        )
