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

# Tables with fewer elements are left to the stock ops, unless the user asks for all. Many of their
# rows occur several times in a batch, and optimizers that square a gradient see the square of the
# merged row instead of the squares of its occurrences, with which some learn more slowly
# (docs/tried.md).
_LARGE_TABLE = 1 << 18

# By the bits of a code: the codec, and the bits of a code of a sum (FinerSums in
# custom_ops/lib/wire/wire.h).
_KINDS = {1: "one_bit", 2: "two_bit", 3: "three_bit", 4: "four_bit"}
_FINER_SUMS = {1: 3, 2: 3, 3: 4, 4: 4}

# Integers that an argument may be.
NATURAL = range(sys.maxsize)
POSITIVE = range(1, sys.maxsize)


class CompressionParams(abc.ABC):
    """Decides which gradients are compressed, and how: a value of `compression_params`.

    It is a small frozen dataclass: equal arguments make equal values, and it holds no tensors. For
    an argument `x` it keeps what its method `_settle_x`, if it has one, returns.
    """

    def __post_init__(self) -> None:
        kept = vars(self)
        for name, given in tuple(kept.items()):
            settle = getattr(self, f"_settle_{name}", None)
            kept[name] = given if settle is None else settle(given)

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

    @property
    def _automatic(self) -> bool:
        return self.threshold == "auto"

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
            reason = f"have fewer elements than bypass_size={self.bypass_size}: a smaller one"
            return f"{reason} compresses them"
        return ""

    def _why_not_rows(self, gradient: Gradient) -> str:
        kind = type(self).__name__ if "sparse" in vars(self) else "Quantized"
        if not self._automatic:
            return ', for which a fixed threshold has no codes: threshold="auto" has'
        if self.sparse is False:
            return f", and sparse=False: {kind}(sparse=True) compresses them"
        if self.sparse is None and gradient.elements < _LARGE_TABLE:
            return (
                f" with fewer than {_LARGE_TABLE:,} elements: {kind}(sparse=True) compresses "
                f"them from bypass_size={self.bypass_size} on"
            )
        return ""

    def _settle_bits(self, given: Any) -> int:
        return integer(f"bits must be one of {list(_KINDS)}", given, allowed=_KINDS)

    def _settle_bypass_size(self, given: Any) -> int:
        default = BYPASS_SIZE if self._automatic else 0
        return integer("bypass_size must be None or a number of elements from 0", given, default)

    def _settle_plan(self, given: Any) -> str:
        check(given in plan_names(), f"plan must be one of {plan_names()}", given)
        return given

    def _settle_sum_bits(self, given: Any) -> int | None:
        if not self._automatic:
            return None
        possible = sorted({self.bits, _FINER_SUMS[self.bits]})
        words = f"sum_bits must be None or one of {possible} where an element takes {self.bits} "
        return integer(words + "bits", given, possible[-1], possible)

    def _settle_warm_up(self, given: Any) -> bool:
        return self._automatic if flag("warm_up", given) is None else given

    def _settle_wire(self, given: Any) -> str | None:
        check(given is None or given in WIRES, f"wire must be None or one of {list(WIRES)}", given)
        words = f"wire must be None or {PACKED!r} for codes of one bit, which do not get smaller"
        check(given in (None, PACKED) or self.bits > 1, words, given)
        return given

    def _settle_exclude(self, given: Any) -> Patterns:
        return check_patterns("exclude", given)

    def _settle_sparse(self, given: Any) -> bool | None:
        return flag("sparse", given) if self._automatic else False

    def _settle_sparse_residual_bytes(self, given: Any) -> int:
        return integer("sparse_residual_bytes must be a number of bytes from 0", given)


def check(fits: bool, words: str, given: object) -> None:
    """Raises a ValueError that says what an argument must be, unless it fits."""
    if not fits:
        raise ValueError(f"{words}, got {given!r}")


def flag(name: str, given: Any) -> bool | None:
    """Returns an argument that may be `None`, `True` or `False`."""
    check(isinstance(given, bool | None), f"{name} must be None, True or False", given)
    return given


def integer(
    words: str,
    given: Any,
    default: int | None = None,
    allowed: Container[int] = NATURAL,
) -> int:
    """Returns an integer, of Python or NumPy, that is allowed, or the default for `None`.

    Raises:
      ValueError: if it is something else; the words say what it must be.
    """
    if given is None and default is not None:
        return default
    is_integer = isinstance(given, numbers.Integral) and not isinstance(given, bool)
    check(is_integer and int(given) in allowed, words, given)
    return int(given)
