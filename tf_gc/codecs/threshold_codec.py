"""The base class of codecs with a threshold: arguments, which tensors they compress, ops."""

import abc
import dataclasses
import numbers
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from tf_gc.codecs.base import PLANS, MessageCodec

# On one host, two bits take less time than the stock sum at any size (benchmarks/bypass.py). But
# tensors below this size are biases, scales, and the first and last layers of small models: the
# few bytes that compression would save there are not worth the rounding.
_BYPASS_SIZE = 2048

_DTYPES = (tf.float32, tf.float16, tf.bfloat16)


class ThresholdOps(NamedTuple):
    """A codec's functions in `tf_gc.ops`."""

    encode: Callable[..., tf.Tensor]
    decode: Callable[..., list[tf.Tensor]]
    reencode: Callable[..., tf.Tensor]
    count: Callable[..., tf.Tensor]
    decode_shards: Callable[..., list[tf.Tensor]]
    message_bits: Callable[..., float]


@dataclasses.dataclass(frozen=True)
class ThresholdCodec(MessageCodec):
    """A codec with automatic scales or a fixed threshold.

    Attributes:
      threshold: `"auto"` or a number.
      bypass_size: tensors with fewer elements are reduced in full precision.
      plan: who sends what to whom.
      sum_layers: in how many messages, 1 or 2, a sum is sent that has to be rounded again.
      warm_up: whether the first steps are in full precision; the default is yes with `"auto"`.

    Raises:
      ValueError: if the codec does not take a value.
    """

    threshold: float | str = "auto"
    bypass_size: int | None = None
    plan: str = "auto"
    sum_layers: int | None = None
    warm_up: bool | None = None

    _ops: ClassVar[ThresholdOps]

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", self._checked_threshold())
        bypass_size = self.bypass_size
        if bypass_size is None:
            bypass_size = _BYPASS_SIZE if self.threshold == "auto" else 0
        elif (
            isinstance(bypass_size, bool)
            or not isinstance(bypass_size, numbers.Integral)
            or bypass_size < 0
        ):
            raise ValueError(
                f"bypass_size must be None or a number of elements from 0, got {bypass_size!r}"
            )
        object.__setattr__(self, "bypass_size", int(bypass_size))
        if self.plan not in PLANS:
            raise ValueError(f"plan must be one of {list(PLANS)}, got {self.plan!r}")
        self._check_sum_layers()
        if self.warm_up is None:
            object.__setattr__(self, "warm_up", self.threshold == "auto")
        elif not isinstance(self.warm_up, bool):
            raise ValueError(f"warm_up must be None, True or False, got {self.warm_up!r}")
        elif self.warm_up and self.threshold != "auto":
            raise ValueError(
                "warm_up=True is for threshold='auto': what a fixed threshold sends is MXNet's, "
                f"from the first step on; got threshold={self.threshold!r}"
            )

    def compresses(self, dtype: tf.DType, num_elements: int) -> bool:
        assert self.bypass_size is not None
        return dtype in _DTYPES and num_elements >= max(self.bypass_size, 1)

    def bits(self, replicas: int) -> float:
        assert self.sum_layers is not None
        messages = self.sum_layers if replicas > 1 else 1
        return messages * self._ops.message_bits(replicas, self.threshold)

    def encode(self, gradients: Sequence[tf.Tensor], residuals: Sequence[tf.Variable]) -> tf.Tensor:
        return self._ops.encode(gradients, residuals, self.threshold)

    def decode(self, messages: Sequence[tf.Tensor], like: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return self._ops.decode(messages, like, self.threshold)

    def encode_shards(
        self,
        gradients: Sequence[tf.Tensor],
        residuals: Sequence[tf.Variable],
        shards: int,
        own: int,
    ) -> tf.Tensor:
        # With a fixed threshold the result must not depend on the plan, so a replica also rounds
        # its own shard.
        skip = own if self.threshold == "auto" else None
        return self._ops.encode(gradients, residuals, self.threshold, shards, skip)

    def sum_shard(
        self,
        messages: Sequence[tf.Tensor],
        gradients: Sequence[tf.Tensor],
        residuals: Sequence[tf.Variable],
        shards: int,
        own: int,
    ) -> tf.Tensor:
        if self.threshold == "auto":
            return self._ops.reencode(messages, gradients, residuals, own, shards, self.sum_layers)
        return self._ops.count(messages, shards, self.threshold)

    def decode_shards(
        self, messages: Sequence[tf.Tensor], like: Sequence[tf.Tensor], replicas: int
    ) -> list[tf.Tensor]:
        return self._ops.decode_shards(
            messages,
            like,
            self.threshold,
            shards=replicas,
            replicas=replicas,
            layers=self.sum_layers,
        )

    def _check_sum_layers(self) -> None:
        layers = self.sum_layers
        if layers is None:
            object.__setattr__(self, "sum_layers", 2 if self.threshold == "auto" else 1)
        elif isinstance(layers, bool) or not isinstance(layers, int) or layers not in (1, 2):
            raise ValueError(f"sum_layers must be None, 1 or 2, got {layers!r}")
        elif layers != 1 and self.threshold != "auto":
            raise ValueError(
                "sum_layers=2 is for threshold='auto': sums with a fixed threshold are sent "
                f"without loss; got threshold={self.threshold!r}"
            )

    @staticmethod
    @abc.abstractmethod
    def _takes(threshold: np.float32) -> bool:
        """Whether this codec takes a number as its threshold."""

    @staticmethod
    @abc.abstractmethod
    def _range() -> str:
        """Describes in words the numbers that `_takes` accepts, for an error."""

    def _checked_threshold(self) -> float | str:
        threshold = self.threshold
        if isinstance(threshold, str) and threshold == "auto":
            return threshold
        if isinstance(threshold, numbers.Real) and not isinstance(threshold, bool):
            value = float(threshold)
            with np.errstate(over="ignore"):
                as_sent = np.float32(value)
            if self._takes(as_sent):
                return value
        raise ValueError(f'threshold must be "auto" or {self._range()}, got {threshold!r}')
