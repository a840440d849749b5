"""The two-bit codec with error feedback."""

import dataclasses
import numbers
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_gc import ops
from tf_gc.codecs.base import PLANS, MessageCodec

# On one host two bits take less time than the stock sum at any size (benchmarks/bypass.py), but
# below this one the few bytes saved are not worth the rounding of biases and scales.
_BYPASS_SIZE = 1024

# What a float32 residual can hold without overflow, and what is no denormal.
_SMALLEST_THRESHOLD = 2.0**-126
_THRESHOLD_LIMIT = 2.0**120

_DTYPES = (tf.float32, tf.float16, tf.bfloat16)


@dataclasses.dataclass(frozen=True)
class TwoBit(MessageCodec):
    """Sends each gradient element as +s, -s or 0 and keeps the rest in a residual.

    Attributes:
      threshold: `"auto"` (the default): each block of 128 elements sends its own s, found
        from the block's mean magnitude. Or a positive number: s is that number, for all, and
        an element is sent when gradient plus residual reaches it; this is MXNet's 2-bit
        gradient compression. Keras averages the loss over the batch and MXNet adds it up, so
        a threshold that suits MXNet is too large by about the batch size here.
      bypass_size: tensors with fewer elements are reduced in full precision. `None` chooses
        the size from which compression saves time with `"auto"`, and 0 for a number as
        threshold, since MXNet compresses every tensor.
      plan: who sends what to whom. "all_gather": everyone sends its message to everyone.
        "scatter_gather": everyone adds up one shard, and sends the sum to everyone; what a
        replica sends does not grow with their number. With automatic scales the sums are
        rounded to two bits again, and their residuals kept; with a fixed threshold the result is
        that of "all_gather", bit for bit. "hierarchical": the replicas of a host are summed in
        full precision, and only what crosses hosts is compressed. "auto" (the default): the one
        that sends least.

    Raises:
      ValueError: if a value is not one of those.
    """

    threshold: float | str = "auto"
    bypass_size: int | None = None
    plan: str = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", _checked_threshold(self.threshold))
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

    def compresses(self, dtype: tf.DType, num_elements: int) -> bool:
        assert self.bypass_size is not None
        return dtype in _DTYPES and num_elements >= max(self.bypass_size, 1)

    def bits(self, replicas: int) -> float:
        return ops.two_bit_message_bits(replicas, self.threshold)

    def encode(self, gradients: Sequence[tf.Tensor], residuals: Sequence[tf.Variable]) -> tf.Tensor:
        return ops.two_bit_encode(gradients, residuals, self.threshold)

    def decode(self, messages: Sequence[tf.Tensor], like: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return ops.two_bit_decode(messages, like, self.threshold)

    def encode_shards(
        self,
        gradients: Sequence[tf.Tensor],
        residuals: Sequence[tf.Variable],
        shards: int,
        own: int,
    ) -> tf.Tensor:
        # A fixed threshold has one result, whatever the plan: all that is sent is rounded.
        skip = own if self.threshold == "auto" else None
        return ops.two_bit_encode(gradients, residuals, self.threshold, shards, skip)

    def sum_shard(
        self,
        messages: Sequence[tf.Tensor],
        gradients: Sequence[tf.Tensor],
        residuals: Sequence[tf.Variable],
        shards: int,
        own: int,
    ) -> tf.Tensor:
        if self.threshold == "auto":
            return ops.two_bit_reencode(messages, gradients, residuals, own, shards)
        return ops.two_bit_count(messages, shards, self.threshold)

    def decode_shards(
        self, messages: Sequence[tf.Tensor], like: Sequence[tf.Tensor], replicas: int
    ) -> list[tf.Tensor]:
        return ops.two_bit_decode_shards(
            messages, like, self.threshold, shards=replicas, replicas=replicas
        )


def _checked_threshold(threshold: object) -> float | str:
    if isinstance(threshold, str) and threshold == "auto":
        return threshold
    if isinstance(threshold, numbers.Real) and not isinstance(threshold, bool):
        value = float(threshold)
        with np.errstate(over="ignore"):
            as_sent = np.float32(value)
        if _SMALLEST_THRESHOLD <= as_sent < _THRESHOLD_LIMIT:
            return value
    raise ValueError(
        'threshold must be "auto" or a positive, finite number (from 2^-126 to below 2^120), '
        f"got {threshold!r}"
    )
