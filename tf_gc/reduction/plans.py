"""All plans, and the choice among them: the default is the plan that sends the fewest bits.

It counts the bits of packed messages, since nobody knows before how small messages get.
"""

from tf_gc.codecs import Codec
from tf_gc.reduction.all_gather import AllGather
from tf_gc.reduction.group import Network
from tf_gc.reduction.hierarchical import Hierarchical
from tf_gc.reduction.plan import Plan
from tf_gc.reduction.scatter_gather import ScatterGather
from tf_gc.reduction.wire import ChosenWire, choose_wire, possible_wires

# Instead of a plan's name: the plan that sends least.
AUTO = "auto"

# A plan that sends more than so many times as much as another is not worth trying.
_WORTH_TRYING = 1.4

# Of plans that send equally much, the first is chosen.
PLANS: tuple[type[Plan], ...] = (AllGather, ScatterGather, Hierarchical)


def plan_names() -> list[str]:
    """Returns what users may ask for."""
    return [AUTO, *(plan.name for plan in PLANS)]


def choose_plan(name: str, codec: Codec, network: Network) -> type[Plan]:
    """Returns the plan that a user asks for.

    Args:
      name: one of `plan_names`.
      codec: the codec.
      network: the replicas.

    Raises:
      ValueError: if the plan is of no use on this network.
    """
    if name == AUTO:
        return min(PLANS, key=lambda plan: plan.cost(codec, network))
    (chosen,) = (plan for plan in PLANS if plan.name == name)
    if refusal := chosen.refusal(network):
        raise ValueError(f"plan={name!r} {refusal}")
    return chosen


class Plans:
    """The plans and wires in use on a network, each made or chosen once."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._made: dict[type[Plan], Plan] = {}
        self._wires: dict[tuple[str | None, Codec], ChosenWire] = {}

    def of(self, name: str, codec: Codec) -> Plan:
        """Returns the plan that a user asks for. Making one may be a collective.

        Raises:
          ValueError: as `choose_plan`.
        """
        chosen = choose_plan(name, codec, self._network)
        if chosen not in self._made:
            self._made[chosen] = chosen(self._network)
        return self._made[chosen]

    def worth_trying(self, name: str, wire: str | None, codec: Codec) -> list[tuple[str, str]]:
        """Returns the plans and wires, by their names, that may be the fastest.

        Args:
          name: one of `plan_names`; a plan that a user asks for is the only one.
          wire: one of `WIRES`, which is the only one, or `None`.
          codec: the codec.
        """
        costs = {plan.name: plan.cost(codec, self._network) for plan in PLANS}
        if len(self._network.devices) == 1:
            del costs[Hierarchical.name]  # it is one of the others
        names = [n for n, cost in costs.items() if cost <= _WORTH_TRYING * min(costs.values())]
        wires = possible_wires(codec, self._network) if wire is None else (wire,)
        return [(n, w) for n in (names if name == AUTO else [name]) for w in wires]

    def wire_of(self, wire: str | None, codec: Codec) -> ChosenWire:
        """Returns the wire that a user asks for. To choose one may be a collective.

        Raises:
          ValueError: as `choose_wire`.
        """
        asked = (wire, codec)
        if asked not in self._wires:
            self._wires[asked] = choose_wire(wire, codec, self._network)
        return self._wires[asked]
