"""The way of sending that a trial finds to be the fastest."""

import dataclasses
from typing import Any

from tf_gc.params.compression import CompressionParams, Gradient, LeftAlone
from tf_gc.params.from_params import from_params, register
from tf_gc.params.patterns import Patterns
from tf_gc.reducers.reducer import Spec


@register("auto")
@dataclasses.dataclass(frozen=True)
class Auto(CompressionParams):
    """Tries full precision and each plan and wire in the first steps, and stays with the fastest.

    After the warm-up the candidates take turns: full precision, and `params` with each plan and
    wire that may be fast in this cluster. Each has 16 steps, four at a time, which are valid
    training steps. Then all workers choose alike the candidate with the least median time of a
    step, each candidate's by its slowest worker, and train with it from then on. The log says what
    was measured, what was chosen, and how to write it down; `strategy.report().trial` is the same
    as a value.

    Since a measurement decides, two runs may choose differently, and plans do not give the same
    bits. With `choice` a run is the same to the bit as one that has chosen the same.

    The choice is saved with the residuals, in checkpoints and in backups, and holds after a restart
    with as many replicas.

    Attributes:
      params: what is compressed, and with which codec: whatever `compression_params` may be;
        `None` for `Quantized()`. A plan or wire that it names is not tried otherwise.
      choice: the name of a candidate, such as "full precision" or "all_gather, packed", to be
        chosen whatever the trial finds. `None` for the fastest.

    Raises:
      ValueError: if `params` has an unknown type, key or value, is an `Auto` itself, or compresses
        nothing; or `choice` is not a name.
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
        if self.choice is not None and not (isinstance(self.choice, str) and self.choice):
            raise ValueError(
                'choice must be None or the name of a candidate such as "full precision", got '
                f"{self.choice!r}"
            )

    def specs(self) -> tuple[Spec, ...]:
        return self.params.specs()

    def spec_of(self, gradient: Gradient) -> Spec | LeftAlone:
        return self.params.spec_of(gradient)

    def patterns(self) -> Patterns:
        return Patterns(self.params.patterns())

    def sent_by(self, plan: str, wire: str) -> CompressionParams:
        return self.params.sent_by(plan, wire)
