"""Which gradients are compressed: those of some dtypes, from a size on, and not excluded."""

import dataclasses
from collections.abc import Iterable
from typing import TypeVar

import tensorflow as tf

from tf_gc.integers import as_integer
from tf_gc.params.compression import CompressionParams, Gradient, Pattern, Treatment
from tf_gc.params.patterns import Patterns, check_patterns, matches
from tf_gc.reducers.plans import AUTO, plan_names

# On one host, two and three bits take less time than the stock sum from 128 elements on
# (benchmarks/bypass.py). But tensors below this size are biases, scales, and the first and last
# layers of small models: the few bytes that compression would save there are not worth the
# rounding.
BYPASS_SIZE = 2048

SelectiveT = TypeVar("SelectiveT", bound="SelectiveParams")


class SelectiveParams(CompressionParams):
    """Gives one treatment to gradients of some dtypes, from a size on.

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

    def sent_by(self: SelectiveT, plan: str, wire: str) -> SelectiveT:
        del wire
        plan = plan if self.plan == AUTO else self.plan
        return dataclasses.replace(self, plan=plan)  # type: ignore[type-var]

    def treatment_of(self, gradient: Gradient) -> Treatment | None:
        assert self.bypass_size is not None
        if gradient.dtype not in self._compressible:
            return None
        if gradient.elements < max(self.bypass_size, 1) or self.excludes(gradient):
            return None
        return self._treatment_of_rows(gradient) if gradient.sparse else self.treatments()[0]

    def _treatment_of_rows(self, gradient: Gradient) -> Treatment | None:
        """Returns how a gradient that is a `tf.IndexedSlices` is sent."""
        del gradient
        return None

    def excludes(self, gradient: Gradient) -> bool:
        return any(matches(pattern, gradient) for pattern in self.patterns())

    def patterns(self) -> Patterns:
        assert isinstance(self.exclude, Patterns)
        return self.exclude
