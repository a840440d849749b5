"""Patterns: how a user says which variables are meant."""

import re
from collections.abc import Callable, Iterable, Set
from typing import Any, TypeAlias

from tf_gc.gradients import Gradient

Pattern: TypeAlias = str | Callable[[Gradient], bool]


class Patterns(tuple[Pattern, ...]):
    """Patterns that print functions by name: all workers compare what params print."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"({', '.join(map(name_of, self))}{',' if len(self) == 1 else ''})"


def check_patterns(argument: str, patterns: Any) -> Patterns:
    """Returns the patterns that an argument of this name stands for: one, or several of them."""
    several = (patterns,)
    if isinstance(patterns, Iterable) and not isinstance(patterns, str | bytes | type):
        several = tuple(patterns)
    for pattern in several:
        if pattern == "":
            raise ValueError(f"{argument} has the pattern '', which would match every variable")
        if isinstance(pattern, str):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"{argument} has the pattern {pattern!r}, which is no regular expression: "
                    f"{error}"
                ) from None
        elif not callable(pattern) or isinstance(pattern, type):
            raise TypeError(
                f"{argument} takes regular expressions that are searched for in the paths of "
                f"variables and functions of a tf_gc.params.Gradient, got {pattern!r}"
            )
    if isinstance(patterns, Set):  # whose order differs from process to process
        several = tuple(sorted(several, key=name_of))
    return Patterns(several)


def matches(pattern: Pattern, gradient: Gradient) -> bool:
    """Returns whether a pattern means the variable of a gradient."""
    if isinstance(pattern, str):
        return re.search(pattern, gradient.path) is not None
    return bool(pattern(gradient))


def name_of(pattern: Pattern) -> str:
    """Returns a pattern as text: a string in quotes, a function by module and name."""
    if isinstance(pattern, str):
        return repr(pattern)
    named = pattern if hasattr(pattern, "__qualname__") else type(pattern)
    return f"{named.__module__}.{named.__qualname__}"
