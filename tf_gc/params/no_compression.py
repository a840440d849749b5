"""Leaves every gradient to the stock all-reduce."""

import dataclasses

from tf_gc.params.compression import CompressionParams, Gradient, Treatment


@dataclasses.dataclass(frozen=True)
class NoCompression(CompressionParams):
    """Compresses nothing: results are those of the stock strategy, bit for bit."""

    def treatments(self) -> tuple[Treatment, ...]:
        return ()

    def treatment_of(self, gradient: Gradient) -> Treatment | None:
        del gradient
        return None

    def excludes(self, gradient: Gradient) -> bool:
        del gradient
        return True
