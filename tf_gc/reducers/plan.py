"""The interface of a plan: who sends what to whom so that every replica gets the sum."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import tensorflow as tf

from tf_gc.codecs import Codec
from tf_gc.network.group import Channel, Member, Network, Replica, is_cpu
from tf_gc.reducers.compact_channel import carrier, open_channel
from tf_gc.reducers.reducer import Encoded, Reduction

# The sums of a bucket, for each member of this host on the member's device, and what counts the
# elements that the first of these members has sent.
Sums: TypeAlias = tuple[Sequence[Sequence[tf.Tensor]], Callable[[], tf.Tensor]]


class Plan(abc.ABC):
    """Who sends what to whom, on one network.

    A plan moves messages and never looks inside them. How it moves them is the plan's own affair:
    by channels of the network's groups, which pack messages as the wire asks for, or point to point
    by placing ops on devices.

    Attributes:
      name: what users call the plan.
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def __init__(self, network: Network) -> None:
        """Initializes the plan on a network. All workers make the same plans in the same order."""

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
    def is_one_of_the_others(cls, network: Network) -> bool:
        """Returns whether another plan does on a network what this one does, for no more bits."""
        del network
        return False

    @classmethod
    def why_not_packed(cls, network: Network) -> str | None:
        """Returns why no CPU could pack the plan's messages; `None` if CPUs can."""
        if all(is_cpu(device) for device in network.devices):
            return None
        if network.hosts == 1:
            return "one host's GPUs exchange messages without its CPU"
        if len(network.devices) == 1:
            return None
        return f"with {cls.name!r} several GPUs of a host send messages, without its CPU"

    @abc.abstractmethod
    def reduce(
        self, codec: Codec, wire: str, bucket: int, replicas: Sequence[Replica], options: Any
    ) -> Reduction:
        """Sums a bucket over all replicas. All replicas get the same bits.

        Args:
          codec: the codec.
          wire: how codes travel, one of `tf_gc.reducers.wire.WIRES`; the sums do not depend on
            it.
          bucket: the bucket's number.
          replicas: what each replica of this host contributes, in the order of the network's
            devices.
          options: a `tf.distribute.experimental.CommunicationOptions`.
        """


class FlatPlan(Plan):
    """A plan in which all members of one group do the same.

    Attributes:
      collectives: how many collectives follow one another.
      by_shards: whether a member adds up one shard of a bucket, and sends the sum to the others.
    """

    collectives: ClassVar[int]
    by_shards: ClassVar[bool]

    def __init__(self, network: Network) -> None:
        self._group = network.group(network.devices)

    @classmethod
    def cost(cls, codec: Codec, network: Network) -> float:
        if network.hosts == 1 and all(is_cpu(device) for device in network.devices):
            return 0  # in shared memory nothing is sent
        return cls.bits_sent(codec, network.hosts * len(network.devices))

    def reduce(
        self, codec: Codec, wire: str, bucket: int, replicas: Sequence[Replica], options: Any
    ) -> Reduction:
        group = carrier(self._group, wire)
        channel = open_channel(group, codec, wire, bucket, replicas, options)
        members = group.members(replicas)
        sums, count_sent = self.sums(codec, members, channel)
        return Reduction.by(channel, sums, Encoded.by(members[0], count_sent))

    @staticmethod
    @abc.abstractmethod
    def bits_sent(codec: Codec, members: int) -> float:
        """Returns how many bits a member of a group sends for each element of a gradient."""

    @staticmethod
    @abc.abstractmethod
    def rounds(members: int) -> int:
        """Returns how many rounds of messages follow one another."""

    @staticmethod
    @abc.abstractmethod
    def sums(codec: Codec, members: Sequence[Member], channel: Channel) -> Sums:
        """Returns the sums over a group."""
