"""The two-bit codec with error feedback."""

import dataclasses
from typing import ClassVar

import numpy as np

from tf_gc import ops
from tf_gc.codecs.threshold_codec import ThresholdCodec, ThresholdOps

# What a float32 residual can hold without overflow, and what is no denormal.
_SMALLEST_THRESHOLD = 2.0**-126
_THRESHOLD_LIMIT = 2.0**120


@dataclasses.dataclass(frozen=True)
class TwoBit(ThresholdCodec):
    """Sends each gradient element as +s, -s or 0 and keeps the rest in a residual.

    Attributes:
      threshold: `"auto"` (the default): each block of 128 elements sends its own s, found
        from the block's magnitudes. Or a positive number: s is that number, for all, and
        an element is sent when gradient plus residual reaches it; this is MXNet's 2-bit
        gradient compression. Keras averages the loss over the batch and MXNet adds it up, so
        a threshold that suits MXNet is too large by about the batch size here.
      bypass_size: tensors with fewer elements are reduced in full precision. `None` chooses
        the size from which compression saves time with `"auto"`, and 0 for a number as
        threshold, since MXNet compresses every tensor.
      plan: who sends what to whom. "all_gather": everyone sends its message to everyone.
        "scatter_gather": everyone adds up one shard, and sends the sum to everyone; what a
        replica sends does not grow with their number. With automatic scales the sums are
        rounded again (`sum_layers`), and their residuals kept; with a fixed threshold the result
        is that of "all_gather", bit for bit. "hierarchical": the replicas of a host are summed in
        full precision, and only what crosses hosts is compressed. "auto" (the default): the one
        that sends least.
      sum_layers: with automatic scales, the messages of a sum in a "scatter_gather", 1 or 2. The
        second encodes what the first leaves: 9 levels instead of 3. `None`: 2, which trains as
        "all_gather" does; 1 sends two thirds of the bytes. A fixed threshold needs one.
      warm_up: whether the first steps, a dozen to a few dozen, are in full precision, until the
        norm of the gradients has stopped growing (`tf_gc.warm_up`). Adam takes until then to know
        how large they are. `None`: with `"auto"`; a fixed threshold has no warm-up, as in MXNet.

    Raises:
      ValueError: if a value is not one of those.
    """

    _ops: ClassVar[ThresholdOps] = ThresholdOps(
        encode=ops.two_bit_encode,
        decode=ops.two_bit_decode,
        reencode=ops.two_bit_reencode,
        count=ops.two_bit_count,
        decode_shards=ops.two_bit_decode_shards,
        message_bits=ops.two_bit_message_bits,
    )

    @staticmethod
    def _takes(threshold: np.float32) -> bool:
        return bool(_SMALLEST_THRESHOLD <= threshold < _THRESHOLD_LIMIT)

    @staticmethod
    def _range() -> str:
        return "a positive, finite number (from 2^-126 to below 2^120)"
