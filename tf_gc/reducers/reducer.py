"""The interface of a reducer: a way to sum a bucket of gradients over all replicas."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_gc.network.group import Bytes, Channel, Group, Member, Network, Replica, cpu_of
from tf_gc.reducers.exchange import Exchange, Push
from tf_gc.state.seat import Slot


@dataclasses.dataclass(frozen=True)
class Encoded:
    """What one replica of this host, or its whole host, encoded of a bucket.

    By this a step measures itself.

    Attributes:
      device: where it was encoded.
      gradients: what was encoded.
      residuals: where what was not sent of it is kept; none if a reducer keeps nothing.
      count_sent: builds the number of elements that were sent as something other than zero, an
        int64 scalar.
    """

    device: str
    gradients: Sequence[tf.Tensor]
    residuals: Sequence[tf.Variable]
    count_sent: Callable[[], tf.Tensor]

    @classmethod
    def by(cls, member: Member, count_sent: Callable[[], tf.Tensor]) -> "Encoded":
        """Returns what a member of a group encoded."""
        return cls(member.device, member.gradients, member.residuals, count_sent)


@dataclasses.dataclass(frozen=True)
class Reduction:
    """What the reduction of a bucket gives.

    Attributes:
      sums: for each replica of this host, the bucket's sums, on the replica's device.
      encoded: what was encoded.
      sent_bytes: what a replica sent for the bucket (in a hierarchy, the replica's part of what
        its host sent to other hosts).
      most_bytes: what that is at most, where only the step itself knows `sent_bytes`; 0 if that is
        not known either.
      stock_bytes: what the stock ops would have a replica send, where only the step itself knows.
    """

    sums: Sequence[Sequence[tf.Tensor]]
    encoded: Encoded
    sent_bytes: Bytes
    most_bytes: Bytes = 0
    stock_bytes: Bytes | None = None

    @classmethod
    def by(
        cls,
        channel: Channel,
        sums: Sequence[Sequence[tf.Tensor]],
        encoded: Encoded,
        replicas: int = 1,
    ) -> "Reduction":
        """Returns a reduction that sent everything through one channel, for so many replicas."""
        with tf.device(cpu_of(encoded.device)):
            sent, most = channel.sent_bytes // replicas, channel.most_bytes // replicas
        return cls(sums, encoded, sent, most)


class Reducer(Exchange):
    """Sums buckets of gradients over all replicas of one network.

    Attributes:
      choice: what was chosen for this network and why, for the log; empty if there was no choice.
    """

    choice: str

    @property
    def in_full_precision(self) -> "Reducer | None":
        """What sums the steps of a warm-up; `None` if the stock ops do."""
        return None

    def slot(self, shape: Sequence[int]) -> Slot | None:
        """Returns what it keeps for a gradient beside residuals, the same on all replicas.

        Args:
          shape: that of the gradient's variable.
        """
        del shape
        return None

    @abc.abstractmethod
    def reduce(self, bucket: int, replicas: Sequence[Replica], options: Any) -> Reduction:
        """Sums a bucket over all replicas. All replicas get the same bits.

        Args:
          bucket: the bucket's number.
          replicas: what each replica of this host contributes, in the order of the network's
            devices.
          options: a `tf.distribute.experimental.CommunicationOptions`.
        """


class Way(abc.ABC):
    """How a user wants gradients to be summed, on whatever network: a small frozen value."""

    @property
    @abc.abstractmethod
    def native(self) -> bool:
        """Whether that needs kernels of the native library on the replicas' devices."""

    @property
    def in_one_bucket(self) -> bool:
        """Whether all gradients travel together, because messages are small."""
        return False

    @abc.abstractmethod
    def on(self, network: Network) -> Reducer | str:
        """Makes the reducer for a network. This may be a collective of all workers.

        Returns:
          The reducer; or why these gradients are left to the stock ops there, in words that follow
          "n gradients".

        Raises:
          ValueError: if the user asks for something that is of no use on this network.
        """

    @abc.abstractmethod
    def push(self) -> Push:
        """Makes what sends gradients to parameter servers, instead of summing them.

        Raises:
          ValueError: if the user asks for something that is of no use there.
        """

    @abc.abstractmethod
    def alternatives(self, network: Network) -> Sequence[tuple[str, str]]:
        """Returns the plans and wires, by their names, that may be the fastest on a network.

        What the user asks for is the only one.
        """


class Reducers:
    """The reducers in use on a network, each made once.

    Attributes:
      network: the replicas. Each of its groups is made once, too.
    """

    def __init__(self, network: Network) -> None:
        self.network: Network = _SharedGroups(network)
        self._made: dict[Way, Reducer | str] = {}

    def of(self, way: Way) -> Reducer | str:
        """Returns what `way.on` says. To make a reducer may be a collective.

        Raises:
          ValueError: as `Way.on`.
        """
        if way not in self._made:
            self._made[way] = way.on(self.network)
        return self._made[way]


class _SharedGroups:
    """A network that makes each group once."""

    def __init__(self, network: Network) -> None:
        self.hosts = network.hosts
        self.devices = network.devices
        self._network = network
        self._groups: dict[tuple[str, ...], Group] = {}

    def rate(self) -> float:
        return self._network.rate()

    def group(self, devices: Sequence[str]) -> Group:
        key = tuple(devices)
        if key not in self._groups:
            self._groups[key] = self._network.group(devices)
        return self._groups[key]
