"""The interface of a plan: who sends which messages to whom so that every replica gets the sum."""

import abc
from collections.abc import Sequence
from typing import Any

from tf_gc.codecs import Codec
from tf_gc.network.group import Channel, Network, Replica, is_cpu
from tf_gc.reducers.compact_channel import CompactChannel
from tf_gc.reducers.reducer import Reducer
from tf_gc.reducers.wire import PACKED


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
        self.residual_dtype = codec.residual_dtype

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
    """A plan in which all replicas of one group do the same: of some devices, or of all."""

    def __init__(
        self, codec: Codec, wire: str, network: Network, devices: Sequence[str] = ()
    ) -> None:
        super().__init__(codec, wire, network)
        group = network.group(devices or network.devices)
        self.group = group if wire == PACKED else group.on_cpus or group

    @classmethod
    def cost(cls, codec: Codec, network: Network) -> float:
        if network.hosts == 1 and all(is_cpu(device) for device in network.devices):
            return 0  # in shared memory nothing is sent
        return cls.bits_sent(codec, network.hosts * len(network.devices))

    @staticmethod
    @abc.abstractmethod
    def bits_sent(codec: Codec, replicas: int) -> float:
        """Returns how many bits a replica of a group sends for each element of a gradient."""

    def open(self, bucket: int, first: Replica, options: Any) -> Channel:
        """Returns a channel of the group for the messages of a bucket, on the plan's wire."""
        channel = self.group.open(bucket, options)
        if self.wire == PACKED:
            return channel
        ranks = self.group.ranks
        return CompactChannel(channel, self.codec, ranks, first.notes, first.gradients)
