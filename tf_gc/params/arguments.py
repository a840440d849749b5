"""The interface of params, and checks of their and other arguments."""

import abc
import numbers
import sys
from collections.abc import Container, Iterable, Sequence
from typing import Any

from tf_gc.gradients import Gradient, Uncompressed
from tf_gc.params.patterns import Pattern
from tf_gc.reducers.reducer import Spec

POSITIVE = range(1, sys.maxsize)


class CompressionParams(abc.ABC):
    """Decides which gradients are compressed, and how: a value of `compression_params`.

    It is a frozen dataclass: equal arguments make equal values, and it holds no tensors.
    """

    @abc.abstractmethod
    def spec_of(self, gradient: Gradient) -> Spec | Uncompressed:
        """Returns how a gradient is sent, or why the stock ops sum it in full precision."""

    def contained(self) -> Sequence["CompressionParams"]:
        """Returns the params from which these ones choose."""
        return ()

    def specs(self) -> tuple[Spec, ...]:
        """Returns all specs that gradients may get; none if nothing is compressed.

        A strategy makes what they need when it is constructed, because that may take collectives.
        """
        return tuple(dict.fromkeys(spec for each in self.contained() for spec in each.specs()))

    def patterns(self) -> tuple[Pattern, ...]:
        """Returns all patterns in which the user names variables."""
        mine: Iterable[Pattern] = getattr(self, "exclude", ())
        return (*mine, *(pattern for each in self.contained() for pattern in each.patterns()))


def check(fits: bool, words: str, given: Any) -> Any:
    """Returns an argument that fits, or raises a ValueError that says what it must be."""
    if fits:
        return given
    raise ValueError(f"{words}, got {given!r}")


def integer(
    words: str, given: Any, default: int | None = None, allowed: Container[int] = range(sys.maxsize)
) -> int:
    """Returns an integer, of Python or NumPy, that is allowed, or the default for `None`."""
    if given is None and default is not None:
        return default
    is_integer = isinstance(given, numbers.Integral) and not isinstance(given, bool)
    return int(check(is_integer and int(given) in allowed, words, given))


def normalize(made: Any, /, **values: Any) -> None:
    """Sets fields of a frozen dataclass that is being made."""
    for name, value in values.items():
        object.__setattr__(made, name, value)
