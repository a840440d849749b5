"""The kinds of params: what users write, and which arguments each takes."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tf_gc.codecs import CastCodec
from tf_gc.gradients import Gradient, LeftAlone
from tf_gc.params.arguments import Arguments, CompressionParams, check, integer
from tf_gc.params.patterns import Pattern
from tf_gc.reducers.factors import Factors, matrix_of
from tf_gc.reducers.reducer import Spec

CASTS = ("bfloat16", "float16")

_MOST_RANK = 64  # kMostRank in custom_ops/lib/low_rank/factors.h

# Bits of both factors for an element of a matrix; where they take more, codes are used, which keep
# more of a gradient in as many bits.
_MOST_BITS = 1


@dataclasses.dataclass(frozen=True)
class NoCompression(CompressionParams):
    """Compresses nothing: results equal the stock strategy's, bit for bit."""

    def specs(self) -> tuple[Spec, ...]:
        return ()

    def spec_of(self, gradient: Gradient) -> Spec | LeftAlone:
        return LeftAlone(gradient.path, "are excluded by NoCompression()", excluded=True)


def _fixed(value: Any) -> Any:
    """A field that is no argument."""
    return dataclasses.field(default=value, init=False, repr=False)


@dataclasses.dataclass(frozen=True)
class _InCodes(Arguments):
    bits: int = 3
    threshold: float | str = "auto"
    bypass_size: int | None = None
    plan: str = "auto"
    sum_bits: int | None = None
    warm_up: bool | None = None
    wire: str | None = None
    exclude: Pattern | Iterable[Pattern] = ()
    sparse: bool | None = None
    sparse_residual_bytes: int = 64 << 20


@dataclasses.dataclass(frozen=True)
class Quantized(_InCodes):
    """Sends each gradient element in 1 to 4 bits and keeps the rest in a residual.

    Each block of 128 elements has a scale s, found from its magnitudes, which takes another 0.125
    bits an element. docs/options.md says more about the arguments.

    Attributes:
      bits: how many bits an element takes. With 3 it is sent as the nearest of 0 and plus or minus
        5/32, 1/2 and 1 of s; with 4 of 0 and plus or minus 1/32, 1/8, 1/4, 3/8, 1/2, 3/4 and 1 of s
        (NUQSGD, Ramezani-Kebrya et al. 2021).
      bypass_size: tensors with fewer elements are summed in full precision. `None`: 2,048.
      plan: "all_gather", "scatter_gather" or "hierarchical"; "auto" is the one that sends least.
      sum_bits: how many bits an element of a sum takes in a "scatter_gather": `bits`, or `None` for
        3 where that is 1 or 2, and 4 where it is 3. Residuals keep what that leaves.
      warm_up: whether the first steps, a dozen to a few dozen, are in full precision, until the
        norm of the gradients has stopped growing. `None`: yes.
      wire: how codes travel, which changes no result: "packed", or, of 2 bits and more, "compact",
        in fewer bytes, which take time on the CPU. `None`: "compact" between hosts whose CPUs reach
        each other at a low rate, measured when the strategy is made.
      exclude: patterns, or one, of variables whose gradients are summed in full precision: regular
        expressions, searched for anywhere in a variable's path, such as r"/gamma$"; or functions
        of a `tf_gc.params.Gradient` that say whether it is meant, alike on all workers.
      sparse: whether `tf.IndexedSlices`, as the gradients of embeddings, are compressed, on CPUs,
        each row with a scale of its own. `None`: for tables from 262,144 elements on.
      sparse_residual_bytes: a table whose residual would take more bytes on a replica has none, and
        its rows are sent in two messages; the second encodes what the first one leaves.

    Raises:
      ValueError: if an argument has another value.
      TypeError: if `exclude` has something that is no pattern.
    """

    threshold: str = _fixed("auto")


@dataclasses.dataclass(frozen=True)
class TwoBit(_InCodes):
    """Sends each gradient element as +s, -s or 0 and keeps the rest in a residual.

    The other arguments and errors are as in `Quantized`.

    Attributes:
      threshold: `"auto"`: each block of 128 elements has its own s. Or a positive number, MXNet's
        2-bit compression: s is that number, and an element is sent when gradient plus residual
        reaches it, whatever the size of the tensor, from the first step on, and without loss in
        sums. Keras averages the loss over the batch and MXNet adds it up, so a threshold that suits
        MXNet is too large here by about the batch size.
    """

    bits: int = _fixed(2)


@dataclasses.dataclass(frozen=True)
class OneBit(_InCodes):
    """Sends each gradient element as +s or -s and keeps the rest in a residual.

    The other arguments and errors are as in `TwoBit`. If an element is NaN, infinite or beyond
    2^120, its whole block is NaN on every replica, and its residuals stay as they are.

    Attributes:
      threshold: `"auto"`: each block of 128 elements has its own s, its mean magnitude (EF-SignSGD,
        Karimireddy et al. 2019). Or a number, MXNet's 1-bit compression: s is 1, and plus is sent
        where gradient plus residual is greater than that number. Every element then moves by 1 in
        every step, so a learning rate that suits averaged gradients is far too large.
    """

    bits: int = _fixed(1)


@dataclasses.dataclass(frozen=True)
class Cast(Arguments):
    """Sends each element of a float32 gradient as the nearest number of 16 bits.

    They are summed in float32; in a "scatter_gather" the sums are rounded as well. There are no
    residuals and no warm-up. The stock ops sum gradients of 16 bits. The other arguments and errors
    are as in `Quantized`.

    Attributes:
      dtype: "bfloat16", with the range of float32 and 8 significant bits, or "float16", with 11:
        what is beyond 65,504, also in a sum, becomes infinite, and what is below 6e-8 zero.
    """

    dtype: str = "bfloat16"
    bypass_size: int | None = None
    plan: str = "auto"
    exclude: Pattern | Iterable[Pattern] = ()

    sparse = False
    _dtypes = (tf.float32,)

    def __post_init__(self) -> None:
        super().__post_init__()
        dtype = self.dtype.name if isinstance(self.dtype, tf.DType) else self.dtype
        check(dtype in CASTS, f"dtype must be one of {list(CASTS)}", self.dtype)
        vars(self)["dtype"] = dtype

    def _codec(self) -> CastCodec:
        return CastCodec(self.dtype)

    def _why_not_rows(self, gradient: Gradient) -> str:
        return ", and Cast is for dense ones: tf_gc.Quantized() compresses large tables"


@dataclasses.dataclass(frozen=True)
class LowRank(Arguments):
    """Sends a matrix as two thin factors, and keeps the rest in a residual.

    A tensor is a matrix M [rows, columns], its first axes by its last ones, approximated by P Qᵀ.
    The factors P [rows, rank] and Q [columns, rank] are all-reduced in float32, one after the other
    (PowerSGD, Vogels et al. 2019). Where they take more than one bit for each element, as with
    square matrices of fewer than 64 * rank rows, and for vectors and tables of embeddings,
    gradients are sent as by `Quantized()`. The other arguments and errors are as there.

    Attributes:
      rank: how many columns a factor has, from 1 to 64.
    """

    rank: int = 4
    bypass_size: int | None = None
    plan: str = "auto"
    warm_up: bool | None = None
    wire: str | None = None
    exclude: Pattern | Iterable[Pattern] = ()

    sum_bits = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        words = f"rank must be from 1 to {_MOST_RANK}"
        vars(self)["rank"] = integer(words, self.rank, allowed=range(1, _MOST_RANK + 1))

    def specs(self) -> tuple[Spec, ...]:
        return (*super().specs(), Factors(self.rank, bool(self.warm_up)))

    def spec_of(self, gradient: Gradient) -> Spec | LeftAlone:
        codes = super().spec_of(gradient)
        if isinstance(codes, LeftAlone) or gradient.sparse:
            return codes
        bits = 32 * self.rank * sum(matrix_of(gradient.shape))
        return self.specs()[-1] if bits <= _MOST_BITS * gradient.elements else codes
