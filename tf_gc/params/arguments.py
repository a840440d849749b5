"""The arguments of params: what each may be, and what they say of a gradient."""

import abc
import numbers
import sys
from collections.abc import Container
from typing import Any, ClassVar

import tensorflow as tf

from tf_gc.codecs import Codec, NativeCodec
from tf_gc.gradients import Gradient, LeftAlone
from tf_gc.params.patterns import Pattern, Patterns, check_patterns, matches, name_of
from tf_gc.reducers.codes import Codes, plan_names
from tf_gc.reducers.reducer import Spec
from tf_gc.reducers.rows import Rows
from tf_gc.reducers.wire import PACKED, WIRES

# Smaller tensors are biases, scales, and the first and last layers of small models: the few bytes
# that compression would save there are not worth the rounding.
BYPASS_SIZE = 2048

# Tables with fewer elements are left to the stock ops, unless the user asks for all: optimizers see
# the square of a row's sum, where stock ones see its occurrences, and some then learn more slowly
# (docs/embeddings.md).
_LARGE_TABLE = 1 << 18

# By the bits of a code: the codec, and the bits of a code of a sum (FinerSums in
# custom_ops/lib/wire/wire.h).
_KINDS = {1: "one_bit", 2: "two_bit", 3: "three_bit", 4: "four_bit"}
_FINER_SUMS = {1: 3, 2: 3, 3: 4, 4: 4}

# Fixed thresholds are below this: the least double that float32 rounds to 2^120. A float32 residual
# can hold smaller magnitudes without overflow (kMaxMagnitude of the native library, which is not
# needed to make params).
_THRESHOLD_LIMIT = 2.0**120 - 2.0**95

# By the bits of a code: the least fixed threshold, and in words which there are.
_THRESHOLDS = {
    1: (-_THRESHOLD_LIMIT, "a finite number (between -2^120 and 2^120)"),
    2: (2.0**-126, "a positive, finite number (from 2^-126 to below 2^120)"),
}

POSITIVE = range(1, sys.maxsize)


class CompressionParams(abc.ABC):
    """Decides which gradients are compressed, and how: a value of `compression_params`.

    It is a small frozen dataclass: equal arguments make equal values, and it holds no tensors.
    """

    @abc.abstractmethod
    def specs(self) -> tuple[Spec, ...]:
        """Returns all specs that gradients may get; none if nothing is compressed.

        A strategy makes what they need when it is constructed, because that may take collectives.
        """

    @abc.abstractmethod
    def spec_of(self, gradient: Gradient) -> Spec | LeftAlone:
        """Returns how a gradient is sent, or why the stock ops sum it in full precision."""

    def patterns(self) -> tuple[Pattern, ...]:
        """Returns all patterns in which the user names variables."""
        return ()


class Arguments(CompressionParams):
    """Sends gradients of some dtypes, from a size on, by a codec.

    A kind of params has a field for each argument that users may give; the other arguments have the
    values below. `tf_gc.Quantized` describes them.
    """

    bits: Any = 3
    threshold: Any = "auto"
    bypass_size: Any
    plan: Any
    sum_bits: Any = None
    warm_up: Any = False
    wire: Any = None
    exclude: Any
    sparse: Any = None
    sparse_residual_bytes: Any = 64 << 20

    _dtypes: ClassVar[tuple[tf.DType, ...]] = (tf.float32, tf.float16, tf.bfloat16)

    def __post_init__(self) -> None:
        kept = vars(self)
        kept["bits"] = integer(f"bits must be one of {list(_KINDS)}", self.bits, allowed=_KINDS)
        kept["threshold"] = self._checked_threshold()
        automatic = self.threshold == "auto"
        words = "bypass_size must be None or a number of elements from 0"
        kept["bypass_size"] = integer(words, self.bypass_size, BYPASS_SIZE if automatic else 0)
        check(self.plan in plan_names(), f"plan must be one of {plan_names()}", self.plan)
        if automatic:
            sums = sorted({self.bits, _FINER_SUMS[self.bits]})
            words = f"sum_bits must be None or one of {sums} where an element takes {self.bits} "
            kept["sum_bits"] = integer(words + "bits", self.sum_bits, sums[-1], sums)
        for name in ("warm_up", "sparse"):
            given = getattr(self, name)
            check(isinstance(given, bool | None), f"{name} must be None, True or False", given)
        kept["warm_up"] = automatic if self.warm_up is None else self.warm_up
        wires = [PACKED] if self.bits == 1 else [*WIRES]  # codes of one bit do not get smaller
        words = f"wire must be None or one of {wires} for codes of {self.bits} bits"
        check(self.wire in (None, *wires), words, self.wire)
        kept["exclude"] = check_patterns("exclude", self.exclude)
        kept["sparse"] = self.sparse if automatic else False
        words = "sparse_residual_bytes must be a number of bytes from 0"
        kept["sparse_residual_bytes"] = integer(words, self.sparse_residual_bytes)

    def _checked_threshold(self) -> float | str:
        given = self.threshold
        if isinstance(given, str) and given == "auto":
            return given
        for name in ("sum_bits", "warm_up", "sparse"):
            other = getattr(self, name)
            if other is not None and other is not False:
                raise ValueError(
                    f"{name}={other!r} is for threshold='auto': what a fixed threshold sends is "
                    f"MXNet's, to the bit; got threshold={given!r}"
                )
        least, words = _THRESHOLDS[self.bits]
        is_number = isinstance(given, numbers.Real) and not isinstance(given, bool)
        fits = is_number and least <= given and abs(given) < _THRESHOLD_LIMIT
        check(fits, f'threshold must be "auto" or {words}', given)
        return float(given)

    def specs(self) -> tuple[Spec, ...]:
        """Returns how dense gradients are sent, rows with a residual, and rows without."""
        codes = Codes(self._codec(), self.plan, self.wire, self.warm_up)
        rows = (Rows(_KINDS[self.bits], layers, self.warm_up) for layers in (1, 2))
        return (codes,) if self.sparse is False else (codes, *rows)

    def spec_of(self, gradient: Gradient) -> Spec | LeftAlone:
        for pattern in self.patterns():
            if matches(pattern, gradient):
                reason = f"are excluded by the pattern {name_of(pattern)}"
                return LeftAlone(gradient.path, reason, excluded=True)
        if reason := self._why_not(gradient):
            return LeftAlone(gradient.path, reason)
        keeps = gradient.elements * tf.float32.size <= self.sparse_residual_bytes
        return self.specs()[0 if not gradient.sparse else 1 if keeps else 2]

    def patterns(self) -> Patterns:
        return self.exclude

    def _codec(self) -> Codec:
        return NativeCodec(_KINDS[self.bits], self.threshold, _KINDS[self.sum_bits or self.bits])

    def _why_not(self, gradient: Gradient) -> str:
        """Returns why a gradient that the user does not exclude is left alone; "" if it is not."""
        if gradient.dtype not in self._dtypes:
            names = ", ".join(dtype.name for dtype in self._dtypes)
            reason = f"have dtype {gradient.dtype.name}: {type(self).__name__} compresses {names}"
            return reason + (", so use float32" if gradient.dtype == tf.float64 else "")
        if gradient.sparse and (reason := self._why_not_rows(gradient)):
            return f"are sparse (tf.IndexedSlices){reason}"
        if gradient.elements == 0:
            return "have no elements"
        if gradient.elements < self.bypass_size:
            return f"have fewer elements than bypass_size={self.bypass_size}, too few to matter"
        return ""

    def _why_not_rows(self, gradient: Gradient) -> str:
        if self.threshold != "auto":
            return ', for which a fixed threshold has no codes: threshold="auto" has'
        if self.sparse is False:
            return ", and sparse=False: sparse=True compresses them"
        if self.sparse is None and gradient.elements < _LARGE_TABLE:
            words = f" with fewer than {_LARGE_TABLE:,} elements: Quantized(sparse=True) compresses"
            return f"{words} them from bypass_size={self.bypass_size} on"
        return ""


def check(fits: bool, words: str, given: object) -> None:
    """Raises a ValueError that says what an argument must be, unless it fits."""
    if not fits:
        raise ValueError(f"{words}, got {given!r}")


def integer(
    words: str, given: Any, default: int | None = None, allowed: Container[int] = range(sys.maxsize)
) -> int:
    """Returns an integer, of Python or NumPy, that is allowed, or the default for `None`."""
    if given is None and default is not None:
        return default
    is_integer = isinstance(given, numbers.Integral) and not isinstance(given, bool)
    check(is_integer and int(given) in allowed, words, given)
    return int(given)
