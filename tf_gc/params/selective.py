"""Which gradients are compressed: those of some dtypes, from a size on, and not excluded."""

from collections.abc import Iterable

import tensorflow as tf

from tf_gc.integers import as_integer
from tf_gc.params.compression import (
    CompressionParams,
    Gradient,
    LeftAlone,
    Pattern,
)
from tf_gc.params.patterns import Patterns, check_patterns, matches, name_of
from tf_gc.reducers.codes import plan_names
from tf_gc.reducers.reducer import Spec

# On one host, two and three bits take less time than the stock sum from 128 elements on
# (benchmarks/results/bypass.json). But tensors below this size are biases, scales, and the first
# and last layers of small models: the few bytes that compression would save there are not worth
# the rounding.
BYPASS_SIZE = 2048


class SelectiveParams(CompressionParams):
    """Gives one spec to gradients of some dtypes, from a size on.

    Attributes:
      bypass_size: tensors with fewer elements are reduced in full precision.
      plan: who sends what to whom.
      exclude: which variables' gradients are reduced in full precision.
    """

    bypass_size: int | None
    plan: str
    exclude: Pattern | Iterable[Pattern]

    @property
    def _compressible(self) -> tuple[tf.DType, ...]:
        """The dtypes of gradients that are compressed."""
        return (tf.float32, tf.float16, tf.bfloat16)

    def _settle_selection(self, bypass_size: int) -> None:
        """Checks the attributes, and sets `bypass_size` if it is `None`.

        Raises:
          ValueError: if an attribute has another value than its class says.
          TypeError: if `exclude` has something that is no pattern.
        """
        object.__setattr__(self, "exclude", check_patterns("exclude", self.exclude))
        size = bypass_size if self.bypass_size is None else as_integer(self.bypass_size)
        if size is None or size < 0:
            raise ValueError(
                f"bypass_size must be None or a number of elements from 0, got {self.bypass_size!r}"
            )
        object.__setattr__(self, "bypass_size", size)
        if self.plan not in plan_names():
            raise ValueError(f"plan must be one of {plan_names()}, got {self.plan!r}")

    def spec_of(self, gradient: Gradient) -> Spec | LeftAlone:
        for pattern in self.patterns():
            if matches(pattern, gradient):
                reason = f"are excluded by the pattern {name_of(pattern)}"
                return LeftAlone(gradient.path, reason, excluded=True)
        reason = self._why_not(gradient)
        return LeftAlone(gradient.path, reason) if reason else self._spec(gradient)

    def _why_not(self, gradient: Gradient) -> str:
        """Returns why a gradient that the user does not exclude is left alone; "" if it is not."""
        assert self.bypass_size is not None
        if gradient.dtype not in self._compressible:
            names = ", ".join(dtype.name for dtype in self._compressible)
            reason = f"have dtype {gradient.dtype.name}: {type(self).__name__} compresses {names}"
            return reason + (", so use float32" if gradient.dtype == tf.float64 else "")
        if gradient.sparse and (reason := self._why_not_rows(gradient)):
            return f"are sparse (tf.IndexedSlices){reason}"
        if gradient.elements == 0:
            return "have no elements"
        if gradient.elements < self.bypass_size:
            return (
                f"have fewer elements than bypass_size={self.bypass_size}: a smaller one "
                "compresses them"
            )
        return ""

    def _why_not_rows(self, gradient: Gradient) -> str:
        """Returns what follows "sparse" in the reason to leave such a gradient alone."""
        del gradient
        mine = type(self).__name__
        return f", and {mine} is for dense ones: tf_gc.Quantized() compresses large tables"

    def _spec(self, gradient: Gradient) -> Spec:
        """Returns how a gradient is sent that is not left alone."""
        del gradient
        return self.specs()[0]

    def patterns(self) -> Patterns:
        assert isinstance(self.exclude, Patterns)
        return self.exclude
