"""Plans: who sends what to whom. The default is the plan that sends the fewest bytes."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.codecs import MessageCodec
from tf_gc.reduction.all_gather import all_gather_sum
from tf_gc.reduction.exchange import Group, is_cpu
from tf_gc.reduction.hierarchical import share_on_host, sum_on_host
from tf_gc.reduction.scatter_gather import scatter_gather_sum

_FLAT = {"all_gather": all_gather_sum, "scatter_gather": scatter_gather_sum}


def choose_plan(codec: MessageCodec, hosts: int, devices: Sequence[str]) -> str:
    """Returns the plan that a codec asks for or, for "auto", the plan that sends least.

    Args:
      codec: the codec.
      hosts: the number of hosts.
      devices: the devices of this host's replicas; the other hosts have as many.

    Returns:
      "all_gather", "scatter_gather" or "hierarchical".

    Raises:
      ValueError: if the codec asks for the hierarchical plan and there is only one host.
    """
    if codec.plan == "hierarchical" and hosts == 1:
        raise ValueError(
            "plan='hierarchical' compresses what crosses hosts, and here all replicas are on one: "
            "nothing would be compressed; use 'auto', 'all_gather' or 'scatter_gather'"
        )
    if codec.plan != "auto":
        return codec.plan
    if hosts > 1 and len(devices) > 1:
        return "hierarchical"
    if hosts == 1 and all(is_cpu(device) for device in devices):
        return "all_gather"  # shared memory: nothing is sent, and a second stage would only cost
    return _flat_plan(codec, hosts * len(devices))


def _flat_plan(codec: MessageCodec, members: int) -> str:
    """Returns the plan with which each member of a group sends least."""
    one, total = codec.bits(1), codec.bits(members)
    by_all_gather = (members - 1) * one
    by_scatter_gather = (members - 1) * (one + total) / members
    return "all_gather" if by_all_gather <= by_scatter_gather else "scatter_gather"


@dataclasses.dataclass(frozen=True)
class Plan:
    """How the buckets of a step are summed over replicas.

    Attributes:
      name: "all_gather", "scatter_gather" or "hierarchical".
      devices: the devices of this host's replicas.
      groups: who exchanges messages with whom. In a hierarchy each replica of a host has a
        group, together with its peers on the other hosts, and the buckets take turns among the
        groups. In the other plans there is one group of all replicas.
    """

    name: str
    devices: tuple[str, ...]
    groups: tuple[Group, ...]

    def sum_bucket(
        self,
        codec: MessageCodec,
        bucket: int,
        gradients: Sequence[Sequence[tf.Tensor]],
        residuals: Sequence[Sequence[tf.Variable]],
        options: Any,
    ) -> tuple[list[list[tf.Tensor]], int]:
        """Sums a bucket over all replicas. All replicas get the same bits.

        Args:
          codec: the codec.
          bucket: the bucket's number.
          gradients: for each replica of this host, the bucket's tensors.
          residuals: for each replica of this host, the residuals of its tensors, on its device.
          options: a `tf.distribute.experimental.CommunicationOptions`.

        Returns:
          For each replica of this host the sums on its device, and the bytes that a replica sends
          (in a hierarchy, the replica's part of what its host sends to other hosts).
        """
        turn = bucket % len(self.groups)
        group = self.groups[turn]
        exchange = group.exchange(bucket // len(self.groups), options)
        if self.name != "hierarchical":
            return _FLAT[self.name](codec, gradients, residuals, group, exchange)
        on_host = sum_on_host(gradients, residuals, self.devices, leader=turn)
        between_hosts = _FLAT[_flat_plan(codec, group.size)]
        (sums,), sent = between_hosts(codec, [on_host], [residuals[turn]], group, exchange)
        shared = share_on_host(sums, like=gradients[0], devices=self.devices)
        return shared, sent // len(self.devices)
