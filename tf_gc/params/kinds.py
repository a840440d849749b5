"""The kinds of params: what users write, and what that says of a gradient."""

import dataclasses
import numbers
from collections.abc import Iterable
from typing import Any, ClassVar

import tensorflow as tf

from tf_gc import ops
from tf_gc.codecs import CastCodec, NativeCodec
from tf_gc.codecs.native import keeps_residuals
from tf_gc.gradients import Gradient, Uncompressed
from tf_gc.params.arguments import CompressionParams, check, integer, normalize
from tf_gc.params.patterns import Pattern, check_patterns, matches, name_of
from tf_gc.reducers.codes import Codes, plan_names
from tf_gc.reducers.factors import Factors, matrix_of
from tf_gc.reducers.reducer import Spec
from tf_gc.reducers.rows import Rows
from tf_gc.reducers.wire import PACKED, WIRES

# Smaller tensors are biases, scales, and the first and last layers of small models: the few bytes
# that compression would save there are not worth the rounding.
BYPASS_SIZE = 2048
_SIZE = "bypass_size must be None or a number of elements from 0"

# Tables with fewer elements are left to the stock ops, unless the user asks for all: optimizers see
# the square of a row's sum, where stock ones see its occurrences, and some then learn more slowly
# (docs/embeddings.md).
_LARGE_TABLE = 1 << 18

# The codecs, by the bits of a code.
_CODECS = ops.codecs_by_bits()

# Fixed thresholds are below this: the least double that float32 rounds to the limit of magnitudes.
_THRESHOLD_LIMIT = ops.max_magnitude() * (1 - 2.0**-25)

# By the bits of a code: the least fixed threshold, and in words which there are.
_THRESHOLDS = {
    1: (-_THRESHOLD_LIMIT, "a finite number (between -2^120 and 2^120)"),
    2: (2.0**-126, "a positive, finite number (from 2^-126 to below 2^120)"),
}

CASTS = ("bfloat16", "float16")
RESIDUALS = ("float32", "bfloat16", "int8")

# The default of `sparse_residual_bytes`.
_TABLE_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True)
class NoCompression(CompressionParams):
    """Compresses nothing: results equal the stock strategy's, bit for bit."""

    def spec_of(self, gradient: Gradient) -> Spec | Uncompressed:
        return Uncompressed(gradient.path, "are excluded by NoCompression()", excluded=True)


class _InCodes(CompressionParams):
    """Params with `bits`, a `threshold` and the other arguments of `Quantized`."""

    def __post_init__(self: Any) -> None:
        _check_threshold(self)
        _check_residual(self)
        automatic = self.threshold == "auto"
        warms_up = automatic and keeps_residuals(_CODECS[self.bits])
        words = "sparse_residual_bytes must be a number of bytes from 0"
        normalize(
            self,
            bypass_size=integer(_SIZE, self.bypass_size, BYPASS_SIZE if automatic else 0),
            plan=_plan(self.plan),
            sum_bits=_sum_bits(self.sum_bits, self.bits) if automatic else None,
            warm_up=_switch("warm_up", self.warm_up) is not False and warms_up,
            wire=_wire(self.wire, self.bits),
            exclude=check_patterns("exclude", self.exclude),
            sparse=_switch("sparse", self.sparse) if automatic else False,
            sparse_residual_bytes=integer(words, self.sparse_residual_bytes),
            residual=_residual(self.residual),
        )

    def specs(self: Any) -> tuple[Spec, ...]:
        """Returns how dense gradients are sent, rows in one message, and rows in two."""
        kind = _CODECS[self.bits]
        sum_kind = _CODECS[self.sum_bits or self.bits]
        codec = NativeCodec(kind, self.threshold, sum_kind, self.residual)
        codes = Codes(codec, self.plan, self.wire, self.warm_up)
        ways = (1, 2) if keeps_residuals(kind) else (1,)
        # A block of int8 may have elements of several rows.
        of_rows = "bfloat16" if self.residual == "int8" else self.residual
        asked = self.sparse is True
        rows = (Rows(kind, layers, self.warm_up, of_rows, asked) for layers in ways)
        return (codes,) if self.sparse is False else (codes, *rows)

    def spec_of(self: Any, gradient: Gradient) -> Spec | Uncompressed:
        dtypes = (tf.float32, tf.float16, tf.bfloat16)
        if uncompressed := _why_not(self, gradient, dtypes, self._why_no_rows(gradient)):
            return uncompressed
        dense, *rows = self.specs()
        if not gradient.sparse:
            return dense
        kept_bytes = gradient.elements * tf.as_dtype(rows[0].residual).size
        return rows[0 if kept_bytes <= self.sparse_residual_bytes else -1]

    def _why_no_rows(self: Any, gradient: Gradient) -> str:
        if self.threshold != "auto":
            return ', which a fixed threshold cannot encode: threshold="auto" can'
        if self.sparse is False:
            return ", and sparse=False: sparse=True compresses them"
        if self.sparse is None and gradient.elements < _LARGE_TABLE:
            words = f" with fewer than {_LARGE_TABLE:,} elements: Quantized(sparse=True) compresses"
            return f"{words} them from bypass_size={self.bypass_size} on"
        return ""


@dataclasses.dataclass(frozen=True)
class Quantized(_InCodes):
    """Sends each gradient element in 1 to 4 bits and keeps the rest in a residual; or in 8 bits.

    Each block of 128 elements has a scale s, found from its magnitudes, which takes another 0.125
    bits an element.

    Attributes:
      bits: how many bits an element takes. With 3 it is sent as the nearest of 0 and plus or minus
        5/32, 1/2 and 1 of s; with 4 of 0 and plus or minus 1/32, 1/8, 1/4, 3/8, 1/2, 3/4 and 1 of s
        (NUQSGD, Ramezani-Kebrya et al. 2021). With 8 it is sent as the nearest multiple of s from
        -127 to 127, off by at most 1/253 of the block's largest, and nothing is kept: there are no
        residuals, no warm-up and nothing in checkpoints.
      bypass_size: tensors with fewer elements are summed in full precision. `None`: 2,048.
      plan: "all_gather", "scatter_gather" or "hierarchical"; "auto" is the one that sends least.
      sum_bits: how many bits an element of a sum takes in a "scatter_gather": `bits`, or `None` for
        3 where that is 1 or 2, 4 where it is 3 or 4, and 8. Residuals keep the rounding error.
      warm_up: whether the first steps, a dozen to a few dozen, are in full precision, until the
        norm of the gradients has stopped growing. `None`: yes.
      wire: how codes travel, which changes no result: "packed", or, of 2 bits or more, "compact",
        in fewer bytes, which take time on the CPU. `None`: "compact" between hosts whose CPUs reach
        each other at a low rate, measured when the strategy is made.
      exclude: patterns, or one, of variables whose gradients are summed in full precision: regular
        expressions, searched for anywhere in a variable's path, such as r"/gamma$"; or functions
        of a `tf_gc.params.Gradient` that say whether it is meant, alike on all workers.
      sparse: whether `tf.IndexedSlices`, as the gradients of embeddings, are compressed, each row
        with a scale of its own. `None`: on CPUs, for tables from 262,144 elements on.
      sparse_residual_bytes: a table whose residual would take more bytes on a replica (64 MiB by
        default) has none, and its rows are sent in two messages; the second encodes what the first
        one leaves.
      residual: "float32", or "bfloat16" for half the memory, or "int8" for a quarter (of tables
        half): how a replica keeps what it has not sent, rounded in each step. In int8 128 elements
        have a scale. Checkpoints hold float32, and restore as any.

    Raises:
      ValueError: if an argument has another value.
      TypeError: if `exclude` has something that is no pattern.
    """

    bits: int = 3
    bypass_size: int | None = None
    plan: str = "auto"
    sum_bits: int | None = None
    warm_up: bool | None = None
    wire: str | None = None
    exclude: Pattern | Iterable[Pattern] = ()
    sparse: bool | None = None
    sparse_residual_bytes: int = _TABLE_BYTES
    residual: str = "float32"

    threshold: ClassVar[str] = "auto"

    def __post_init__(self) -> None:
        words = f"bits must be one of {list(_CODECS)}"
        normalize(self, bits=integer(words, self.bits, allowed=_CODECS))
        super().__post_init__()


@dataclasses.dataclass(frozen=True)
class _WithThreshold(_InCodes):
    threshold: float | str = "auto"
    bypass_size: int | None = None
    plan: str = "auto"
    sum_bits: int | None = None
    warm_up: bool | None = None
    wire: str | None = None
    exclude: Pattern | Iterable[Pattern] = ()
    sparse: bool | None = None
    sparse_residual_bytes: int = _TABLE_BYTES
    residual: str = "float32"


@dataclasses.dataclass(frozen=True)
class TwoBit(_WithThreshold):
    """Sends each gradient element as +s, -s or 0 and keeps the rest in a residual.

    The other arguments and errors are as in `Quantized`.

    Attributes:
      threshold: `"auto"`: each block of 128 elements has its own s. Or a positive number, MXNet's
        2-bit compression: s is that number, and an element is sent when gradient plus residual
        reaches it, whatever the size of the tensor, from the first step on, and without loss in
        sums. Keras averages the loss over the batch and MXNet adds it up, so a threshold that suits
        MXNet is too large here by about the batch size.
    """

    bits: ClassVar[int] = 2


@dataclasses.dataclass(frozen=True)
class OneBit(_WithThreshold):
    """Sends each gradient element as +s or -s and keeps the rest in a residual.

    The other arguments and errors are as in `TwoBit`. If an element is NaN, infinite or beyond
    2^120, its whole block is NaN on every replica, and its residuals stay as they are.

    Attributes:
      threshold: `"auto"`: each block of 128 elements has its own s, its mean magnitude (EF-SignSGD,
        Karimireddy et al. 2019). Or a number, MXNet's 1-bit compression: s is 1, and plus is sent
        where gradient plus residual is greater than that number. Every element then moves by 1 in
        every step, so a learning rate that suits averaged gradients is far too large.
    """

    bits: ClassVar[int] = 1


@dataclasses.dataclass(frozen=True)
class Cast(CompressionParams):
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

    def __post_init__(self) -> None:
        dtype = self.dtype.name if isinstance(self.dtype, tf.DType) else self.dtype
        check(dtype in CASTS, f"dtype must be one of {list(CASTS)}", self.dtype)
        normalize(
            self,
            dtype=dtype,
            bypass_size=integer(_SIZE, self.bypass_size, BYPASS_SIZE),
            plan=_plan(self.plan),
            exclude=check_patterns("exclude", self.exclude),
        )

    def specs(self) -> tuple[Spec, ...]:
        return (Codes(CastCodec(self.dtype), self.plan),)

    def spec_of(self, gradient: Gradient) -> Spec | Uncompressed:
        no_rows = ", and Cast is for dense ones: tf_gc.Quantized() compresses large tables"
        return _why_not(self, gradient, (tf.float32,), no_rows) or self.specs()[0]


@dataclasses.dataclass(frozen=True)
class LowRank(CompressionParams):
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

    def __post_init__(self) -> None:
        most = ops.most_rank()
        rank = integer(f"rank must be from 1 to {most}", self.rank, allowed=range(1, most + 1))
        checked = vars(self._codes())
        normalize(self, rank=rank, **{name: checked[name] for name in vars(self) if name != "rank"})

    def _codes(self) -> Quantized:
        """Returns what holds for all but large matrices."""
        return Quantized(**{name: value for name, value in vars(self).items() if name != "rank"})

    def specs(self) -> tuple[Spec, ...]:
        return (*self._codes().specs(), Factors(self.rank, bool(self.warm_up)))

    def spec_of(self, gradient: Gradient) -> Spec | Uncompressed:
        codes = self._codes().spec_of(gradient)
        if isinstance(codes, Uncompressed) or gradient.sparse:
            return codes
        # Codes keep more of a gradient in as many bits as both factors take then.
        more_than_one_bit = 32 * self.rank * sum(matrix_of(gradient.shape)) > gradient.elements
        return codes if more_than_one_bit else self.specs()[-1]


def _plan(given: Any) -> Any:
    return check(given in plan_names(), f"plan must be one of {plan_names()}", given)


def _sum_bits(given: Any, bits: int) -> int:
    codecs = ops.sum_codecs(_CODECS[bits])
    allowed = [each for each, codec in _CODECS.items() if codec in codecs]
    words = f"sum_bits must be None or one of {allowed} where an element takes {bits} bits"
    return integer(words, given, allowed[-1], allowed)


def _residual(given: Any) -> Any:
    name = given.name if isinstance(given, tf.DType) else given
    check(name in RESIDUALS, f"residual must be one of {list(RESIDUALS)}", given)
    return name


def _switch(name: str, given: Any) -> Any:
    return check(isinstance(given, bool | None), f"{name} must be None, True or False", given)


def _wire(given: Any, bits: int) -> Any:
    wires = [*WIRES] if ops.is_compactible(_CODECS[bits], "auto") else [PACKED]
    words = f"wire must be None or one of {wires} for codes of {bits} bits"
    return check(given in (None, *wires), words, given)


def _check_residual(params: Any) -> None:
    if keeps_residuals(_CODECS[params.bits]):
        return
    defaults = {"warm_up": False, "sparse_residual_bytes": _TABLE_BYTES, "residual": "float32"}
    for name, default in defaults.items():
        given = getattr(params, name)
        if given not in (None, default):
            raise ValueError(
                f"{name}={given!r} is for codes with residuals, and {params.bits} bits keep none: "
                "leave it out"
            )


def _check_threshold(params: Any) -> None:
    given = params.threshold
    if isinstance(given, str) and given == "auto":
        return
    for name in ("sum_bits", "warm_up", "sparse", "residual"):
        other = getattr(params, name)
        if other is not None and other is not False and other != "float32":
            raise ValueError(
                f"{name}={other!r} is for threshold='auto': with a fixed threshold messages and "
                f"residuals are MXNet's; got threshold={given!r}"
            )
    least, words = _THRESHOLDS[params.bits]
    is_number = isinstance(given, numbers.Real) and not isinstance(given, bool)
    fits = is_number and least <= given and abs(given) < _THRESHOLD_LIMIT
    check(fits, f'threshold must be "auto" or {words}', given)
    normalize(params, threshold=float(given))


def _why_not(
    params: Any, gradient: Gradient, dtypes: Iterable[tf.DType], no_rows: str
) -> Uncompressed | None:
    """Returns why a gradient is not compressed; `no_rows` is why rows are not, "" if they are."""
    for pattern in params.exclude:
        if matches(pattern, gradient):
            reason = f"are excluded by the pattern {name_of(pattern)}"
            return Uncompressed(gradient.path, reason, excluded=True)
    if gradient.dtype not in dtypes:
        names = ", ".join(dtype.name for dtype in dtypes)
        reason = f"have dtype {gradient.dtype.name}: {type(params).__name__} compresses {names}"
        reason += ", so use float32" if gradient.dtype == tf.float64 else ""
    elif gradient.sparse and no_rows:
        reason = f"are sparse (tf.IndexedSlices){no_rows}"
    elif gradient.elements == 0:
        reason = "have no elements"
    elif gradient.elements < params.bypass_size:
        reason = f"have fewer elements than bypass_size={params.bypass_size}, too few to matter"
    else:
        return None
    return Uncompressed(gradient.path, reason)
