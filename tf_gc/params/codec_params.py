"""The arguments that all params with codes share."""

import abc
import dataclasses

from tf_gc.codecs import NativeCodec
from tf_gc.integers import as_integer
from tf_gc.params.compression import Treatment
from tf_gc.params.selective import SelectiveParams
from tf_gc.reduction.codes import Codes
from tf_gc.reduction.wire import PACKED, WIRES


class CodecParams(SelectiveParams):
    """Compresses gradients with one codec of the native library.

    Attributes:
      sum_layers: in how many messages, 1 or 2, a sum is sent that has to be rounded again.
      warm_up: whether the first steps are in full precision.
      wire: how codes travel.
    """

    sum_layers: int | None
    warm_up: bool | None
    wire: str | None

    @abc.abstractmethod
    def _codec(self) -> NativeCodec:
        """Returns the codec."""

    def _settle(self, bypass_size: int, sum_layers: int, warm_up: bool) -> None:
        """Checks the attributes, and sets those that are `None`.

        Raises:
          ValueError: if an attribute has another value than its class says.
          TypeError: if `exclude` has something that is no pattern.
        """
        self._settle_selection(bypass_size)
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
            super().sent_by(plan, wire),  # type: ignore[type-var]
            wire=fitting if self.wire is None else self.wire,
        )

    def treatments(self) -> tuple[Treatment, ...]:
        way = Codes(self._codec(), self.plan, self.wire)
        return (Treatment(way, bool(self.warm_up)),)
