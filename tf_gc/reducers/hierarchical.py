"""The hierarchical plan: full precision on each host, and compression between hosts."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.codecs import Codec
from tf_gc.network.group import Network, Replica, cpu_of, on_devices, sum_in_order
from tf_gc.reducers.flat_plans import AllGather, ScatterGather
from tf_gc.reducers.plan import FlatPlan, Plan
from tf_gc.reducers.reducer import Reduction
from tf_gc.state.stored import narrowed, widened


class Hierarchical(Plan):
    """The replicas of a host are summed first, and one of them, the leader, sends for the host.

    Each replica has a group with its peers on the other hosts, and the buckets take turns among the
    groups, so that all devices of a host share the work.
    """

    plan = "hierarchical"

    def __init__(self, codec: Codec, wire: str, network: Network) -> None:
        super().__init__(codec, wire, network)
        flat = sends_least(codec, network.hosts)
        self._plans = [flat(codec, wire, network, [device]) for device in network.devices]

    @classmethod
    def cost(cls, codec: Codec, network: Network) -> float:
        if network.hosts == 1:
            return float("inf")  # it would compress nothing
        sent = sends_least(codec, network.hosts).bits_sent(codec, network.hosts)
        return sent / len(network.devices)

    @classmethod
    def refusal(cls, network: Network) -> str | None:
        if network.hosts > 1:
            return None
        return (
            "compresses what crosses hosts, and here all replicas are on one: nothing would be "
            "compressed; use 'auto', 'all_gather' or 'scatter_gather'"
        )

    @classmethod
    def why_not_packed(cls, network: Network) -> str | None:
        del network
        return None  # one device of each host sends

    def reduce(self, bucket: int, replicas: Sequence[Replica], options: Any) -> Reduction:
        n = len(replicas)
        round_of_turns, turn = divmod(bucket, n)
        leader = _sum_on_host(replicas, turn)
        reduced = self._plans[turn].reduce(round_of_turns, [leader], options)
        with tf.device(cpu_of(leader.device)):
            sent, most = reduced.sent_bytes // n, reduced.most_bytes // n
        dtype = replicas[0].gradients[0].dtype
        shared = on_devices(replicas, lambda _: [tf.cast(x, dtype) for x in reduced.sums[0]])
        return dataclasses.replace(reduced, sums=shared, sent_bytes=sent, most_bytes=most)


def sends_least(codec: Codec, hosts: int) -> type[FlatPlan]:
    """Returns the plan between hosts."""
    return min(AllGather, ScatterGather, key=lambda plan: plan.bits_sent(codec, hosts))


def _sum_on_host(replicas: Sequence[Replica], leader: int) -> Replica:
    """Returns the leader with the sums over this host, in float32, as its gradients.

    It sends for the whole host, and so takes over what is in the residuals of the other replicas:
    after a restart, or after training with another plan, those need not be zero.
    """
    with tf.device(replicas[leader].device):
        kept = zip(*(replica.residuals for replica in replicas), strict=True)
        for gradient, of_variable in zip(replicas[0].gradients, kept, strict=False):
            mine, shape = of_variable[leader], gradient.shape
            others = [residual for i, residual in enumerate(of_variable) if i != leader]
            if others:
                left = sum_in_order([widened(residual, shape) for residual in others])
                mine.assign(narrowed(widened(mine, shape) + left, mine.dtype))
            for residual in others:
                with tf.device(residual.device):
                    residual.assign(tf.zeros(residual.shape, residual.dtype))
        sums = [
            sum_in_order([tf.cast(tensor, tf.float32) for tensor in tensors])
            for tensors in zip(*(replica.gradients for replica in replicas), strict=True)
        ]
    return dataclasses.replace(replicas[leader], gradients=sums)
