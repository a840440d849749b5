"""The arguments that `TwoBit` and `OneBit` share, and which gradients these compress."""

import abc
import dataclasses
import numbers
from typing import ClassVar, Literal

import numpy as np
import tensorflow as tf

from tf_gc.codecs import ThresholdCodec
from tf_gc.params.compression import CompressionParams, Gradient, Treatment
from tf_gc.reduction.plans import plan_names

# On one host, two bits take less time than the stock sum at any size (benchmarks/bypass.py). But
# tensors below this size are biases, scales, and the first and last layers of small models: the
# few bytes that compression would save there are not worth the rounding.
_BYPASS_SIZE = 2048

_DTYPES = (tf.float32, tf.float16, tf.bfloat16)


@dataclasses.dataclass(frozen=True)
class ThresholdParams(CompressionParams):
    """Compresses with automatic scales or a fixed threshold.

    Attributes:
      threshold: `"auto"` or a number.
      bypass_size: tensors with fewer elements are reduced in full precision.
      plan: who sends what to whom.
      sum_layers: in how many messages, 1 or 2, a sum is sent that has to be rounded again.
      warm_up: whether the first steps are in full precision; the default is yes with `"auto"`.

    Raises:
      ValueError: if an attribute has another value.
    """

    threshold: float | str = "auto"
    bypass_size: int | None = None
    plan: str = "auto"
    sum_layers: int | None = None
    warm_up: bool | None = None

    _kind: ClassVar[Literal["two_bit", "one_bit"]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", self._checked_threshold())
        bypass_size = self.bypass_size
        if bypass_size is None:
            bypass_size = _BYPASS_SIZE if self.threshold == "auto" else 0
        elif (
            isinstance(bypass_size, bool)
            or not isinstance(bypass_size, numbers.Integral)
            or bypass_size < 0
        ):
            raise ValueError(
                f"bypass_size must be None or a number of elements from 0, got {bypass_size!r}"
            )
        object.__setattr__(self, "bypass_size", int(bypass_size))
        if self.plan not in plan_names():
            raise ValueError(f"plan must be one of {plan_names()}, got {self.plan!r}")
        self._check_sum_layers()
        if self.warm_up is None:
            object.__setattr__(self, "warm_up", self.threshold == "auto")
        elif not isinstance(self.warm_up, bool):
            raise ValueError(f"warm_up must be None, True or False, got {self.warm_up!r}")
        elif self.warm_up and self.threshold != "auto":
            raise ValueError(
                "warm_up=True is for threshold='auto': what a fixed threshold sends is MXNet's, "
                f"from the first step on; got threshold={self.threshold!r}"
            )

    def treatments(self) -> tuple[Treatment, ...]:
        assert self.sum_layers is not None
        codec = ThresholdCodec(self._kind, self.threshold, self.sum_layers)
        return (Treatment(codec, self.plan),)

    def treatment_of(self, gradient: Gradient) -> Treatment | None:
        assert self.bypass_size is not None
        if gradient.dtype not in _DTYPES or gradient.elements < max(self.bypass_size, 1):
            return None
        return self.treatments()[0]

    def _check_sum_layers(self) -> None:
        layers = self.sum_layers
        if layers is None:
            object.__setattr__(self, "sum_layers", 2 if self.threshold == "auto" else 1)
        elif isinstance(layers, bool) or not isinstance(layers, int) or layers not in (1, 2):
            raise ValueError(f"sum_layers must be None, 1 or 2, got {layers!r}")
        elif layers != 1 and self.threshold != "auto":
            raise ValueError(
                "sum_layers=2 is for threshold='auto': sums with a fixed threshold are sent "
                f"without loss; got threshold={self.threshold!r}"
            )

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
            value = float(threshold)
            with np.errstate(over="ignore"):
                as_sent = np.float32(value)
            if self._takes(as_sent):
                return value
        raise ValueError(f'threshold must be "auto" or {self._range()}, got {threshold!r}')
