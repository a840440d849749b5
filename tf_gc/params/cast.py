"""Sixteen bits an element: the nearest bfloat16 or float16."""

import dataclasses
from collections.abc import Iterable

import tensorflow as tf

from tf_gc.codecs import CastCodec
from tf_gc.params.compression import Pattern
from tf_gc.params.selective import BYPASS_SIZE, SelectiveParams
from tf_gc.reducers.codes import Codes
from tf_gc.reducers.reducer import Spec

DTYPES = ("bfloat16", "float16")


@dataclasses.dataclass(frozen=True)
class Cast(SelectiveParams):
    """Sends each element of a float32 gradient as the nearest number of 16 bits.

    Each replica's gradients are rounded once, and summed in float32. In a "scatter_gather" the sums
    are rounded once more. There are no residuals and no warm-up, so that this takes no memory, and
    half the bytes. Gradients that have 16 bits already are summed as they are, by the stock ops.

    Attributes:
      dtype: "bfloat16", with the range of float32 and 8 significant bits, or "float16", with 11
        significant bits: what is beyond 65,504, also in a sum, becomes infinite, and what is below
        6e-8 zero. A name, or a `tf.DType`.
      bypass_size: tensors with fewer elements are reduced in full precision. `None` chooses 2,048.
      plan: who sends what to whom, as in `TwoBit`.
      exclude: variables whose gradients are reduced in full precision, as in `TwoBit`.

    Raises:
      ValueError: if an attribute has another value.
      TypeError: if `exclude` has something that is no pattern.
    """

    dtype: str = "bfloat16"
    bypass_size: int | None = None
    plan: str = "auto"
    exclude: Pattern | Iterable[Pattern] = ()

    def __post_init__(self) -> None:
        dtype = self.dtype.name if isinstance(self.dtype, tf.DType) else self.dtype
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {list(DTYPES)}, got {self.dtype!r}")
        object.__setattr__(self, "dtype", dtype)
        self._settle_selection(BYPASS_SIZE)

    @property
    def _compressible(self) -> tuple[tf.DType, ...]:
        return (tf.float32,)

    def specs(self) -> tuple[Spec, ...]:
        return (Codes(CastCodec(self.dtype), self.plan),)
