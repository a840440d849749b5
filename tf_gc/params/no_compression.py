"""Leaves every gradient to the stock all-reduce."""

import dataclasses

from tf_gc.params.compression import CompressionParams, Gradient, LeftAlone
from tf_gc.reducers.reducer import Spec


@dataclasses.dataclass(frozen=True)
class NoCompression(CompressionParams):
    """Compresses nothing: results are those of the stock strategy, bit for bit."""

    def specs(self) -> tuple[Spec, ...]:
        return ()

    def spec_of(self, gradient: Gradient) -> Spec | LeftAlone:
        return LeftAlone(gradient.path, "are excluded by NoCompression()", excluded=True)
