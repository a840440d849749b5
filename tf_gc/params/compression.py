"""The interface of what a user says about compression."""

import abc
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tf_gc.gradients import path_of
from tf_gc.reducers.reducer import Spec


@dataclasses.dataclass(frozen=True)
class LeftAlone:
    """A gradient that is not compressed, and why.

    Attributes:
      path: the path of its variable.
      reason: why, and where there is something to do about it, what; in words that follow "n
        gradients".
      excluded: whether the user excludes its variable.
    """

    path: str
    reason: str
    excluded: bool = False


@dataclasses.dataclass(frozen=True)
class Gradient:
    """What is known of a gradient before the first step; a pattern may be a function of this.

    Attributes:
      path: the path of its variable: `variable.path` of a Keras variable, such as
        "dense/kernel", and the name without ":0" of a `tf.Variable`.
      dtype: the gradient's dtype.
      shape: the shape of its variable.
      sparse: whether it is a `tf.IndexedSlices`, rows of its variable.
    """

    path: str
    dtype: tf.DType
    shape: tuple[int, ...]
    sparse: bool = False

    @property
    def elements(self) -> int:
        """The number of elements of its variable."""
        return math.prod(self.shape)


def gradient_of(variable: Any, dtype: tf.DType, sparse: bool) -> Gradient | LeftAlone:
    """Returns what is known of a gradient, of a dtype, that is to be summed for a variable."""
    if not variable.shape.is_fully_defined():
        reason = f"are of variables of shape {variable.shape}: give them one that is known"
        return LeftAlone(path_of(variable), reason)
    return Gradient(path_of(variable), dtype, tuple(variable.shape), sparse)


def once_each(
    known: Sequence[Gradient | LeftAlone | None], variables: Sequence[Any]
) -> list[Gradient | LeftAlone | None]:
    """Leaves alone all but the first gradient of a variable.

    A stream has one residual for a variable, which only one of its gradients can have in a step.

    Args:
      known: what is known of each gradient; `None` for a value that is no gradient.
      variables: what each is for.
    """
    reason = "are of variables that have another gradient in the step: add up those of a variable"
    seen: set[int] = set()
    once: list[Gradient | LeftAlone | None] = []
    for gradient, variable in zip(known, variables, strict=True):
        if gradient is not None and id(variable) in seen:
            gradient = LeftAlone(gradient.path, reason)
        once.append(gradient)
        seen.add(id(variable))
    return once


# How a user says which variables are meant (`tf_gc.params.patterns`).
Pattern: TypeAlias = str | Callable[[Gradient], bool]


class CompressionParams(abc.ABC):
    """Decides which gradients are compressed, and how: a value of `compression_params`.

    It is a small frozen value: equal arguments make equal values, and it holds no tensors.
    """

    @abc.abstractmethod
    def specs(self) -> tuple[Spec, ...]:
        """Returns all specs that gradients may get; none if nothing is compressed.

        A strategy makes what they need when it is constructed, because that may take collectives.
        """

    @abc.abstractmethod
    def spec_of(self, gradient: Gradient) -> Spec | LeftAlone:
        """Returns how a gradient is sent, or why the stock ops sum it in full precision."""

    def patterns(self) -> tuple[Pattern, ...]:
        """Returns all patterns in which the user names variables."""
        return ()
