"""All plans, and the choice among them: the default is the plan that sends the fewest bits.

It counts the bits of packed messages, since nobody knows before how small messages get.
"""

from tf_gc.codecs import Codec
from tf_gc.network.group import Network
from tf_gc.reducers.all_gather import AllGather
from tf_gc.reducers.hierarchical import Hierarchical
from tf_gc.reducers.plan import Plan
from tf_gc.reducers.scatter_gather import ScatterGather

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


def plans_worth_trying(name: str, codec: Codec, network: Network) -> list[type[Plan]]:
    """Returns the plans that may be the fastest.

    Args:
      name: one of `plan_names`; a plan that a user asks for is the only one.
      codec: the codec.
      network: the replicas.
    """
    if name != AUTO:
        return [plan for plan in PLANS if plan.name == name]
    candidates = [plan for plan in PLANS if not plan.is_one_of_the_others(network)]
    costs = {plan: plan.cost(codec, network) for plan in candidates}
    return [plan for plan, cost in costs.items() if cost <= _WORTH_TRYING * min(costs.values())]
