"""The interface of what a user says about compression."""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

from tf_gc.reducers.reducer import Way


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


# How a user says which variables are meant (`tf_gc.params.patterns`).
Pattern: TypeAlias = str | Callable[[Gradient], bool]


@dataclasses.dataclass(frozen=True)
class Treatment:
    """How a gradient is sent. Only gradients with equal treatments share a bucket.

    Attributes:
      way: how it is summed.
      warm_up: whether the first steps are in full precision (`tf_gc.steps.warm_up`).
    """

    way: Way
    warm_up: bool = False


class CompressionParams(abc.ABC):
    """Decides which gradients are compressed, and how: a value of `compression_params`.

    It is a small frozen value: equal arguments make equal values, and it holds no tensors.
    """

    @abc.abstractmethod
    def treatments(self) -> tuple[Treatment, ...]:
        """Returns all treatments that gradients may get; none if nothing is compressed.

        A strategy makes what they need when it is constructed, because that may take collectives.
        """

    @abc.abstractmethod
    def treatment_of(self, gradient: Gradient) -> Treatment | None:
        """Returns how a gradient is sent; `None` sums it in full precision, by the stock ops."""

    def excludes(self, gradient: Gradient) -> bool:
        """Returns whether a gradient is not compressed because the user says so of its variable."""
        del gradient
        return False

    def patterns(self) -> tuple[Pattern, ...]:
        """Returns all patterns in which the user names variables."""
        return ()

    def sent_by(self, plan: str, wire: str) -> "CompressionParams":
        """Returns the same params, with a plan and a wire where the user leaves them open.

        Args:
          plan: the name of a plan.
          wire: "packed", "compact" or "columns"; codes that do not get smaller stay packed.
        """
        del plan, wire
        return self
