"""Low rank: matrices as two thin factors."""

import dataclasses
from collections.abc import Iterable

from tf_gc.integers import as_integer
from tf_gc.params.compression import Gradient, LeftAlone, Pattern
from tf_gc.params.quantized import Quantized
from tf_gc.params.selective import BYPASS_SIZE, SelectiveParams
from tf_gc.reducers.factors import matrix_of
from tf_gc.reducers.low_rank import Factors
from tf_gc.reducers.reducer import Spec

_MOST_RANK = 64  # kMostRank in custom_ops/lib/low_rank/factors.h

# Bits of both factors for an element of a matrix; where they take more, codes are used, which keep
# more of a gradient in as many bits.
_MOST_BITS = 1


@dataclasses.dataclass(frozen=True)
class LowRank(SelectiveParams):
    """Sends a matrix as two thin factors, and keeps the rest in a residual.

    A matrix M [rows, columns] is approximated by P Qᵀ, with factors P [rows, rank] and
    Q [columns, rank], which are summed up in float32, one after the other (PowerSGD, Vogels et al.
    2019). What a replica sends does not grow with the number of replicas. A tensor of more axes is
    a matrix of its first by its last axes, such as a convolution's kernel of height, width and
    input by output.

    Matrices for which the factors take more than one bit for each element, that is square ones with
    fewer than 64 * rank rows, and vectors and tables of embeddings are sent as `Quantized()` sends
    them. Low rank keeps less of a gradient than codes do; docs/options.md says what that costs.

    Attributes:
      rank: how many columns a factor has, from 1 to 64.
      bypass_size: tensors with fewer elements are reduced in full precision. `None` chooses 2,048.
      plan: who sends codes to whom, as in `TwoBit`. Factors are summed by an all-reduce.
      warm_up: whether the first steps are in full precision, as in `TwoBit`. `None` means yes.
      wire: how codes travel, as in `TwoBit`.
      exclude: variables whose gradients are reduced in full precision, as in `TwoBit`.

    Raises:
      ValueError: if an attribute has another value.
      TypeError: if `exclude` has something that is no pattern.
    """

    rank: int = 4
    bypass_size: int | None = None
    plan: str = "auto"
    warm_up: bool | None = None
    wire: str | None = None
    exclude: Pattern | Iterable[Pattern] = ()

    def __post_init__(self) -> None:
        rank = as_integer(self.rank)
        if rank is None or not 1 <= rank <= _MOST_RANK:
            raise ValueError(f"rank must be from 1 to {_MOST_RANK}, got {self.rank!r}")
        object.__setattr__(self, "rank", rank)
        self._settle_selection(BYPASS_SIZE)
        object.__setattr__(self, "warm_up", self._codes.warm_up)

    @property
    def _codes(self) -> Quantized:
        """How everything else is sent."""
        return Quantized(
            bypass_size=self.bypass_size,
            plan=self.plan,
            warm_up=self.warm_up,
            wire=self.wire,
            exclude=self.exclude,
        )

    def specs(self) -> tuple[Spec, ...]:
        return (self._factors, *self._codes.specs())

    def spec_of(self, gradient: Gradient) -> Spec | LeftAlone:
        spec = self._codes.spec_of(gradient)
        if isinstance(spec, LeftAlone) or gradient.sparse:
            return spec
        bits = 32 * self.rank * sum(matrix_of(gradient.shape))
        return self._factors if bits <= _MOST_BITS * gradient.elements else spec

    @property
    def _factors(self) -> Factors:
        return Factors(self.rank, bool(self.warm_up))
