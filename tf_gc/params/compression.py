"""The interface of what a user says about compression."""

import abc
import dataclasses

import tensorflow as tf

from tf_gc.codecs import Codec


@dataclasses.dataclass(frozen=True)
class Gradient:
    """What is known of a dense gradient before the first step.

    Attributes:
      variable: the name of its variable.
      dtype: the gradient's dtype.
      elements: its number of elements.
    """

    variable: str
    dtype: tf.DType
    elements: int


@dataclasses.dataclass(frozen=True)
class Treatment:
    """How a gradient is sent. Only gradients with equal treatments share a bucket.

    Attributes:
      codec: makes the messages.
      plan: the name of a plan, or "auto" for the one that sends least.
      wire: how codes travel: "packed", each in as many bits, or "compact", frequent ones in fewer;
        `None` for the one with which a step takes less time.
    """

    codec: Codec
    plan: str
    wire: str | None = None


class CompressionParams(abc.ABC):
    """Decides which gradients are compressed, and how: a value of `compression_params`.

    It is a small frozen value: equal arguments make equal values, and it holds no tensors.

    Attributes:
      warm_up: whether the first steps are in full precision (`tf_gc.warm_up`).
    """

    warm_up: bool | None = False

    @abc.abstractmethod
    def treatments(self) -> tuple[Treatment, ...]:
        """Returns all treatments that gradients may get; none if nothing is compressed.

        A strategy makes what they need when it is constructed, because that may take collectives.
        """

    @abc.abstractmethod
    def treatment_of(self, gradient: Gradient) -> Treatment | None:
        """Returns how a gradient is sent; `None` sums it in full precision, by the stock ops."""
