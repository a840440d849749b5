"""The interface of a plan: who sends which messages to whom so that every replica gets the sum."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tf_gc.codecs import Codec
from tf_gc.network.group import Channel, Group, Network, Replica, is_cpu
from tf_gc.reducers.compact_channel import carrier, open_channel
from tf_gc.reducers.reducer import Reducer, Reduction

# The sums of a bucket, for each replica of a group that is on this host, on its device, and what
# counts the elements that the first of these replicas has sent.
Sums: TypeAlias = tuple[Sequence[Sequence[tf.Tensor]], Callable[[], tf.Tensor]]


class Plan(Reducer):
    """Sums buckets by messages of a codec. A subclass decides who sends what to whom.

    A plan moves messages and never looks inside them: by channels of the network's groups, which
    pack messages as the wire asks for, or point to point by placing ops on devices. Users call it
    by `plan`, an attribute of the class. All workers make the same plans in the same order.
    """

    def __init__(self, codec: Codec, wire: str, network: Network) -> None:
        del network
        self.codec = codec
        self.name = str(codec)
        self.wire = wire
        self.keeps_residuals = codec.keeps_residuals

    @classmethod
    @abc.abstractmethod
    def cost(cls, codec: Codec, network: Network) -> float:
        """Returns how many bits a replica sends for each element of a gradient."""

    @classmethod
    def refusal(cls, network: Network) -> str | None:
        """Returns why the plan is of no use on a network, for an error; `None` if it is."""
        del network
        return None

    @classmethod
    def why_not_packed(cls, network: Network) -> str | None:
        """Returns why no CPU could pack the plan's messages; `None` if CPUs can."""
        if all(is_cpu(device) for device in network.devices):
            return None
        if network.hosts == 1:
            return "one host's GPUs exchange messages without its CPU"
        if len(network.devices) == 1:
            return None
        return f"with {cls.plan!r} several GPUs of a host send messages, without its CPU"


class FlatPlan(Plan):
    """A plan in which all replicas of one group do the same."""

    def __init__(self, codec: Codec, wire: str, network: Network) -> None:
        super().__init__(codec, wire, network)
        self._group = carrier(network.group(network.devices), self.wire)

    @classmethod
    def cost(cls, codec: Codec, network: Network) -> float:
        if network.hosts == 1 and all(is_cpu(device) for device in network.devices):
            return 0  # in shared memory nothing is sent
        return cls.bits_sent(codec, network.hosts * len(network.devices))

    def reduce(self, bucket: int, replicas: Sequence[Replica], options: Any) -> Reduction:
        channel = open_channel(self._group, self.codec, self.wire, bucket, replicas, options)
        sums, count_sent = self.sums(self.codec, replicas, self._group, channel)
        return Reduction(sums, replicas[0], count_sent, channel.sent_bytes, channel.most_bytes)

    @staticmethod
    @abc.abstractmethod
    def bits_sent(codec: Codec, replicas: int) -> float:
        """Returns how many bits a replica of a group sends for each element of a gradient."""

    @staticmethod
    @abc.abstractmethod
    def sums(codec: Codec, replicas: Sequence[Replica], group: Group, channel: Channel) -> Sums:
        """Returns the sums over a group, of which `replicas` are on this host."""
