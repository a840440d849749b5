"""The arguments that all params with codes share."""

import abc

import tensorflow as tf

from tf_gc.codecs import NativeCodec
from tf_gc.integers import as_integer
from tf_gc.params.compression import Gradient
from tf_gc.params.selective import SelectiveParams
from tf_gc.reducers.codes import Codes
from tf_gc.reducers.reducer import Spec
from tf_gc.reducers.rows import Rows
from tf_gc.reducers.wire import PACKED, WIRES

# By the bits of a code: the codec.
KINDS = {1: "one_bit", 2: "two_bit", 3: "three_bit", 4: "four_bit"}

# The bits of a code of a sum, by those of a code (FinerSums in custom_ops/lib/wire/wire.h).
_FINER_SUMS = {1: 3, 2: 3, 3: 4, 4: 4}

# A residual of a table of more bytes is not kept, unless the user asks for it.
SPARSE_RESIDUAL_BYTES = 64 << 20

# Tables with fewer elements are left to the stock ops, unless the user asks for all. Many of their
# rows occur several times in a batch, and optimizers that square a gradient see the square of the
# merged row instead of the squares of its occurrences, with which some learn more slowly
# (docs/tried.md).
_LARGE_TABLE = 1 << 18


class CodecParams(SelectiveParams):
    """Compresses gradients with one codec of the native library.

    Attributes:
      sum_bits: the bits of a code of a sum that has to be rounded again; `None` if none has.
      warm_up: whether the first steps are in full precision.
      wire: how codes travel.
      sparse: whether gradients that are `tf.IndexedSlices`, as those of embeddings, are compressed
        row by row; `None` means those of large tables, with automatic scales.
      sparse_residual_bytes: the largest residual, in bytes a replica, that is kept for a table.
    """

    sum_bits: int | None
    warm_up: bool | None
    wire: str | None
    sparse: bool | None
    sparse_residual_bytes: int

    @abc.abstractmethod
    def _codec(self) -> NativeCodec:
        """Returns the codec."""

    def _settle(self, bypass_size: int, bits: int | None, warm_up: bool) -> None:
        """Checks the attributes, and sets those that are `None`.

        Args:
          bypass_size: the default.
          bits: the bits of a code; `None` if its threshold is fixed.
          warm_up: the default.

        Raises:
          ValueError: if an attribute has another value than its class says.
          TypeError: if `exclude` has something that is no pattern.
        """
        self._settle_selection(bypass_size)
        if bits is not None:
            possible = sorted({bits, _FINER_SUMS[bits]})
            chosen = possible[-1] if self.sum_bits is None else as_integer(self.sum_bits)
            if chosen not in possible:
                raise ValueError(
                    f"sum_bits must be None or one of {possible} where an element takes {bits} "
                    f"bits, got {self.sum_bits!r}"
                )
            object.__setattr__(self, "sum_bits", chosen)
        if self.warm_up is None:
            object.__setattr__(self, "warm_up", warm_up)
        elif not isinstance(self.warm_up, bool):
            raise ValueError(f"warm_up must be None, True or False, got {self.warm_up!r}")
        if self.wire is not None and self.wire not in WIRES:
            raise ValueError(f"wire must be None or one of {list(WIRES)}, got {self.wire!r}")
        if self.wire not in (None, PACKED) and not self._codec().compacts:
            raise ValueError(
                f"wire must be None or {PACKED!r} for codes of one bit, which do not get smaller, "
                f"got {self.wire!r}"
            )

        automatic = self._codec().threshold == "auto"
        if self.sparse is None:
            object.__setattr__(self, "sparse", None if automatic else False)
        elif not isinstance(self.sparse, bool):
            raise ValueError(f"sparse must be None, True or False, got {self.sparse!r}")
        elif self.sparse and not automatic:
            raise ValueError(
                "sparse=True is for threshold='auto': a fixed threshold is MXNet's, which has no "
                f"codes for sparse gradients; got threshold={self._codec().threshold!r}"
            )
        most = as_integer(self.sparse_residual_bytes)
        if most is None or most < 0:
            raise ValueError(
                "sparse_residual_bytes must be a number of bytes from 0, got "
                f"{self.sparse_residual_bytes!r}"
            )
        object.__setattr__(self, "sparse_residual_bytes", most)

    def specs(self) -> tuple[Spec, ...]:
        codes = Codes(self._codec(), self.plan, self.wire, bool(self.warm_up))
        return (codes,) if self.sparse is False else (codes, self._rows(True), self._rows(False))

    def _why_not_rows(self, gradient: Gradient) -> str:
        if self._codec().threshold != "auto":
            return ', for which a fixed threshold has no codes: threshold="auto" has'
        if self.sparse is False:
            return f", and sparse=False: {type(self).__name__}(sparse=True) compresses them"
        if self.sparse is None and gradient.elements < _LARGE_TABLE:
            return (
                f" with fewer than {_LARGE_TABLE:,} elements: {type(self).__name__}(sparse=True) "
                f"compresses them from bypass_size={self.bypass_size} on"
            )
        return ""

    def _spec(self, gradient: Gradient) -> Spec:
        if not gradient.sparse:
            return super()._spec(gradient)
        keeps = gradient.elements * tf.float32.size <= self.sparse_residual_bytes
        return self._rows(keeps)

    def _rows(self, keeps_residuals: bool) -> Rows:
        return Rows(self._codec().kind, 1 if keeps_residuals else 2, bool(self.warm_up))
