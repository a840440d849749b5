"""The arguments that `TwoBit` and `OneBit` share."""

import abc
import contextlib
import dataclasses
import numbers
from collections.abc import Iterable
from typing import ClassVar, Literal

import numpy as np

from tf_gc.codecs import NativeCodec
from tf_gc.params.codec_params import SPARSE_RESIDUAL_BYTES, CodecParams
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
      sum_layers: in how many messages, 1 or 2, a sum is sent that has to be rounded again.
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
    sum_layers: int | None = None
    warm_up: bool | None = None
    wire: str | None = None
    exclude: Pattern | Iterable[Pattern] = ()
    sparse: bool | None = None
    sparse_residual_bytes: int = SPARSE_RESIDUAL_BYTES

    _kind: ClassVar[Literal["two_bit", "one_bit"]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", self._checked_threshold())
        automatic = self.threshold == "auto"
        self._settle(
            bypass_size=BYPASS_SIZE if automatic else 0,
            sum_layers=2 if automatic else 1,
            warm_up=automatic,
        )
        if automatic:
            return
        if self.warm_up:
            raise ValueError(
                "warm_up=True is for threshold='auto': what a fixed threshold sends is MXNet's, "
                f"from the first step on; got threshold={self.threshold!r}"
            )
        if self.sum_layers != 1:
            raise ValueError(
                "sum_layers=2 is for threshold='auto': sums with a fixed threshold are sent "
                f"without loss; got threshold={self.threshold!r}"
            )

    def _codec(self) -> NativeCodec:
        assert self.sum_layers is not None
        return NativeCodec(self._kind, self.threshold, self.sum_layers)

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
