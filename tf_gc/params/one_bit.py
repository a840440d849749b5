"""One bit an element, with error feedback."""

import dataclasses
from typing import ClassVar

import numpy as np

from tf_gc.params.threshold_params import THRESHOLD_LIMIT, ThresholdParams


@dataclasses.dataclass(frozen=True)
class OneBit(ThresholdParams):
    """Sends each gradient element as +s or -s and keeps the rest in a residual.

    Attributes:
      threshold: `"auto"` (the default): each block of 128 elements sends its signs and its own s,
        the block's mean magnitude (EF-SignSGD, Karimireddy et al. 2019). Or a number: s is 1, and
        plus is sent where gradient plus residual is greater than that number, minus elsewhere;
        this is MXNet's 1-bit gradient compression. Every element then moves by 1 in every step,
        so a learning rate that suits averaged gradients is far too large.
      bypass_size: tensors with fewer elements are reduced in full precision. `None` chooses
        2,048 with `"auto"`, and 0 for a number as threshold, since MXNet compresses every tensor.
      plan: who sends what to whom, as in `TwoBit`. With automatic scales the sums of a
        "scatter_gather" are rounded again, and the residuals keep what that leaves; with a fixed
        threshold the result is that of "all_gather", bit for bit.
      sum_bits: as in `TwoBit`, but 1 or 3.
      warm_up: as in `TwoBit`.
      wire: `None` or "packed": codes of one bit do not get smaller.
      exclude: as in `TwoBit`.
      sparse: as in `TwoBit`.
      sparse_residual_bytes: as in `TwoBit`.

    One bit has no code for "not finite". So if an element is NaN, infinite or beyond 2^120, its
    whole block is NaN on every replica, and the residuals of the block stay as they are.

    Raises:
      ValueError: if an attribute has another value.
      TypeError: if `exclude` has something that is no pattern.
    """

    _bits: ClassVar[int] = 1

    @staticmethod
    def _takes(threshold: np.float32) -> bool:
        return bool(-THRESHOLD_LIMIT < threshold < THRESHOLD_LIMIT)

    @staticmethod
    def _range() -> str:
        return "a finite number (between -2^120 and 2^120)"
