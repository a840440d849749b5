"""Compression if a trial finds that steps take less time with it."""

import dataclasses
from typing import Any

from tf_gc.params.compression import CompressionParams, Gradient, LeftAlone
from tf_gc.params.from_params import from_params, register
from tf_gc.params.patterns import Patterns
from tf_gc.reducers.reducer import Spec

# What a trial tries, and `choice` may be.
FULL_PRECISION, COMPRESSED = WAYS = ("full precision", "compressed")


@register("auto")
@dataclasses.dataclass(frozen=True)
class Auto(CompressionParams):
    """Tries full precision and compression in the first steps, and stays with the faster.

    After the warm-up the two take turns, four steps at a time and 16 steps each, which are valid
    training steps. Then all workers choose alike the one with the smaller median time of a step, on
    the worker that is the slowest with it, and train with it from then on. The log says what was
    measured, what was chosen, and how to write it down; `strategy.report().trial` is the same as a
    value.

    Since a measurement decides, two runs may choose differently. With `choice` a run is the same to
    the bit as one that has chosen the same.

    The choice is saved with the residuals, in checkpoints and in backups, and holds after a restart
    with as many replicas.

    Attributes:
      params: how gradients are compressed: whatever `compression_params` may be; `None` for
        `Quantized()`.
      choice: "full precision" or "compressed", to be chosen whatever the trial finds. `None` for
        the faster.

    Raises:
      ValueError: if `params` has an unknown type, key or value, is an `Auto` itself, or compresses
        nothing; or `choice` is something else.
      TypeError: if `params` is of another type.
    """

    params: Any = None
    choice: str | None = None

    def __post_init__(self) -> None:
        params = from_params(self.params, "params")
        if isinstance(params, Auto) or not params.specs():
            raise ValueError(
                "params must say what is compressed, for instance tf_gc.Quantized(), got "
                f"{self.params!r}"
            )
        object.__setattr__(self, "params", params)
        if self.choice is not None and self.choice not in WAYS:
            raise ValueError(f"choice must be None or one of {list(WAYS)}, got {self.choice!r}")

    def specs(self) -> tuple[Spec, ...]:
        return self.params.specs()

    def spec_of(self, gradient: Gradient) -> Spec | LeftAlone:
        return self.params.spec_of(gradient)

    def patterns(self) -> Patterns:
        return Patterns(self.params.patterns())
