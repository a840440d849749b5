"""The interface of a plan: who sends what to whom so that every replica gets the sum."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import tensorflow as tf

from tf_gc.codecs import Codec
from tf_gc.reduction.compact_channel import open_channel
from tf_gc.reduction.group import Bytes, Channel, Member, Network, Replica, is_cpu


@dataclasses.dataclass(frozen=True)
class Reduction:
    """What the reduction of a bucket gives.

    Attributes:
      sums: for each replica of this host, the bucket's sums, on the replica's device.
      sent_bytes: what a replica sent for the bucket (in a hierarchy, the replica's part of what
        its host sent to other hosts).
      most_bytes: what that is at most, where only the step itself knows `sent_bytes`; 0 if that is
        not known either.
    """

    sums: Sequence[Sequence[tf.Tensor]]
    sent_bytes: Bytes
    most_bytes: Bytes = 0

    @classmethod
    def by(
        cls, channel: Channel, sums: Sequence[Sequence[tf.Tensor]], replicas: int = 1
    ) -> "Reduction":
        """Returns a reduction that sent everything through one channel, for so many replicas."""
        return cls(sums, channel.sent_bytes // replicas, channel.most_bytes // replicas)


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

    @abc.abstractmethod
    def reduce(
        self, codec: Codec, wire: str, bucket: int, replicas: Sequence[Replica], options: Any
    ) -> Reduction:
        """Sums a bucket over all replicas. All replicas get the same bits.

        Args:
          codec: the codec.
          wire: how codes travel, one of `tf_gc.reduction.wire.WIRES`; the sums do not depend on
            it.
          bucket: the bucket's number.
          replicas: what each replica of this host contributes, in the order of the network's
            devices.
          options: a `tf.distribute.experimental.CommunicationOptions`.
        """


class FlatPlan(Plan):
    """A plan in which all members of one group do the same."""

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
        channel = open_channel(self._group, codec, wire, bucket, replicas, options)
        sums = self.sums(codec, self._group.members(replicas), channel)
        return Reduction.by(channel, sums)

    @staticmethod
    @abc.abstractmethod
    def bits_sent(codec: Codec, members: int) -> float:
        """Returns how many bits a member of a group sends for each element of a gradient."""

    @staticmethod
    @abc.abstractmethod
    def sums(codec: Codec, members: Sequence[Member], channel: Channel) -> list[list[tf.Tensor]]:
        """Returns the sums over a group, for each member of this host on the member's device."""
