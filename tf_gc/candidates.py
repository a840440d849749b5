"""The candidates of `tf_gc.Auto`: the ways to sum gradients among which a trial chooses."""

import dataclasses

from tf_gc.network.group import Network
from tf_gc.params import Auto, CompressionParams, NoCompression

FULL_PRECISION = "full precision"


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A way to sum gradients.

    Attributes:
      name: what a user calls it.
      params: what trains so from the first step on.
    """

    name: str
    params: CompressionParams


def candidates(auto: Auto, network: Network) -> tuple[Candidate, ...]:
    """Returns what `auto` has to try on a network, full precision first.

    Args:
      auto: what the user asks for.
      network: the replicas.

    Raises:
      ValueError: if `auto` chooses something else.
    """
    ways = [way for spec in auto.specs() for way in spec.alternatives(network)]
    by_params: dict[CompressionParams, str] = {NoCompression(): FULL_PRECISION}
    for plan, wire in ways:
        by_params.setdefault(auto.sent_by(plan, wire), f"{plan}, {wire}")
    found = tuple(Candidate(name, params) for params, name in by_params.items())
    names = [candidate.name for candidate in found]
    if auto.choice is not None and auto.choice not in names:
        raise ValueError(f"choice must be None or one of {names} here, got {auto.choice!r}")
    return found
