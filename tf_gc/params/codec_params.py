"""The arguments that all params with a codec share, and which gradients these compress."""

import abc
import dataclasses
from collections.abc import Iterable

import tensorflow as tf

from tf_gc.codecs import NativeCodec
from tf_gc.integers import as_integer
from tf_gc.params.compression import CompressionParams, Gradient, Pattern, Treatment
from tf_gc.params.patterns import Patterns, check_patterns, matches
from tf_gc.reduction.plans import AUTO, plan_names
from tf_gc.reduction.wire import PACKED, WIRES

# On one host, two and three bits take less time than the stock sum from 128 elements on
# (benchmarks/bypass.py). But tensors below this size are biases, scales, and the first and last
# layers of small models: the few bytes that compression would save there are not worth the
# rounding.
BYPASS_SIZE = 2048

_DTYPES = (tf.float32, tf.float16, tf.bfloat16)


class CodecParams(CompressionParams):
    """Compresses gradients of float dtypes, from a size on, with one codec.

    Attributes:
      bypass_size: tensors with fewer elements are reduced in full precision.
      plan: who sends what to whom.
      sum_layers: in how many messages, 1 or 2, a sum is sent that has to be rounded again.
      warm_up: whether the first steps are in full precision.
      wire: how codes travel.
      exclude: which variables' gradients are reduced in full precision.
    """

    bypass_size: int | None
    plan: str
    sum_layers: int | None
    warm_up: bool | None
    wire: str | None
    exclude: Pattern | Iterable[Pattern]

    @abc.abstractmethod
    def _codec(self) -> NativeCodec:
        """Returns the codec."""

    def _settle(self, bypass_size: int, sum_layers: int, warm_up: bool) -> None:
        """Checks the attributes, and sets those that are `None`.

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
        layers = sum_layers if self.sum_layers is None else as_integer(self.sum_layers)
        if layers not in (1, 2):
            raise ValueError(f"sum_layers must be None, 1 or 2, got {self.sum_layers!r}")
        object.__setattr__(self, "sum_layers", layers)
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

    def sent_by(self, plan: str, wire: str) -> "CodecParams":
        fitting = wire if self._codec().compacts else PACKED
        return dataclasses.replace(
            self,  # type: ignore[type-var]
            plan=plan if self.plan == AUTO else self.plan,
            wire=fitting if self.wire is None else self.wire,
        )

    def treatments(self) -> tuple[Treatment, ...]:
        return (Treatment(self._codec(), self.plan, self.wire, bool(self.warm_up)),)

    def treatment_of(self, gradient: Gradient) -> Treatment | None:
        assert self.bypass_size is not None
        if gradient.dtype not in _DTYPES or gradient.elements < max(self.bypass_size, 1):
            return None
        return None if self.excludes(gradient) else self.treatments()[0]

    def excludes(self, gradient: Gradient) -> bool:
        return any(matches(pattern, gradient) for pattern in self.patterns())

    def patterns(self) -> Patterns:
        assert isinstance(self.exclude, Patterns)
        return self.exclude
