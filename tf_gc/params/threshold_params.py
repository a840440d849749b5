"""The arguments that `TwoBit` and `OneBit` share."""

import abc
import contextlib
import dataclasses
import numbers
from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from tf_gc.codecs import NativeCodec
from tf_gc.params.codec_params import KINDS, SPARSE_RESIDUAL_BYTES, CodecParams
from tf_gc.params.compression import Pattern
from tf_gc.params.selective import BYPASS_SIZE

# A float32 residual can hold magnitudes below this without overflow: kMaxMagnitude of the native
# library, which is not needed to make params.
THRESHOLD_LIMIT = 2.0**120


@dataclasses.dataclass(frozen=True)
class ThresholdParams(CodecParams):
    """Compresses with automatic scales or a fixed threshold.

    Attributes:
      threshold: `"auto"` or a number.
      bypass_size: tensors with fewer elements are reduced in full precision.
      plan: who sends what to whom.
      sum_bits: the bits of a code of a sum that has to be rounded again; `None` with a number.
      warm_up: whether the first steps are in full precision; the default is yes with `"auto"`.
      wire: how codes travel.
      exclude: which variables' gradients are reduced in full precision.
      sparse: whether sparse gradients are compressed; the default is those of large tables with
        `"auto"`.
      sparse_residual_bytes: the largest residual that is kept for a table.

    Raises:
      ValueError: if an attribute has another value.
    """

    threshold: float | str = "auto"
    bypass_size: int | None = None
    plan: str = "auto"
    sum_bits: int | None = None
    warm_up: bool | None = None
    wire: str | None = None
    exclude: Pattern | Iterable[Pattern] = ()
    sparse: bool | None = None
    sparse_residual_bytes: int = SPARSE_RESIDUAL_BYTES

    _bits: ClassVar[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", self._checked_threshold())
        automatic = self.threshold == "auto"
        self._settle(
            bypass_size=BYPASS_SIZE if automatic else 0,
            bits=self._bits if automatic else None,
            warm_up=automatic,
        )
        if automatic:
            return
        if self.warm_up:
            raise ValueError(
                "warm_up=True is for threshold='auto': what a fixed threshold sends is MXNet's, "
                f"from the first step on; got threshold={self.threshold!r}"
            )
        if self.sum_bits is not None:
            raise ValueError(
                f"sum_bits={self.sum_bits!r} is for threshold='auto': sums with a fixed threshold "
                f"are sent without loss; got threshold={self.threshold!r}"
            )

    def _codec(self) -> NativeCodec:
        return NativeCodec(KINDS[self._bits], self.threshold, KINDS[self.sum_bits or self._bits])

    @staticmethod
    @abc.abstractmethod
    def _takes(threshold: np.float32) -> bool:
        """Whether a number may be the threshold."""

    @staticmethod
    @abc.abstractmethod
    def _range() -> str:
        """Describes in words the numbers that `_takes` accepts, for an error."""

    def _checked_threshold(self) -> float | str:
        threshold = self.threshold
        if isinstance(threshold, str) and threshold == "auto":
            return threshold
        if isinstance(threshold, numbers.Real) and not isinstance(threshold, bool):
            with contextlib.suppress(OverflowError), np.errstate(over="ignore"):
                value = float(threshold)
                if self._takes(np.float32(value)):
                    return value
        raise ValueError(f'threshold must be "auto" or {self._range()}, got {threshold!r}')
