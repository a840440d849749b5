"""Leaves every gradient to the stock all-reduce."""

import dataclasses

from tf_gc.params.compression import CompressionParams, Gradient, LeftAlone, Treatment


@dataclasses.dataclass(frozen=True)
class NoCompression(CompressionParams):
    """Compresses nothing: results are those of the stock strategy, bit for bit."""

    def treatments(self) -> tuple[Treatment, ...]:
        return ()

    def treatment_of(self, gradient: Gradient) -> Treatment | LeftAlone:
        return LeftAlone(gradient.path, "are excluded by NoCompression()", excluded=True)
