"""A network of workers of which only one exists: it gets its own messages back as everyone's."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.network.group import Channel, Group, Received
from tf_gc.planner.time_model import Link


class Copies:
    """The `tf_gc.network.group.Network` of workers of one replica each, the first on a device.

    Its channels are one for each bucket that was reduced.
    """

    def __init__(self, link: Link, device: str) -> None:
        self.hosts = link.workers
        self.devices: tuple[str, ...] = (device,)
        self.channels: list[CopyChannel] = []
        self._link = link

    def rate(self) -> float:
        size = 1 << 20  # as `ClusterNetwork` sends
        return 8 * size * (self.hosts - 1) / self._link.all_gather(size)

    def group(self, devices: Sequence[str]) -> Group:
        del devices
        return Group((0,), self.hosts, self._open)

    def _open(self, bucket: int, options: Any) -> "CopyChannel":
        del bucket, options
        self.channels.append(CopyChannel(self.hosts))
        return self.channels[-1]


class CopyChannel(Channel):
    """Gives a worker its own messages as everyone's; counts collectives and rounds of messages."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.collectives = self.rounds = 0
        self._graph = tf.compat.v1.get_default_graph()

    def all_gather(self, messages: Sequence[tf.Tensor]) -> Sequence[Received]:
        self.count(messages[0], messages[0].shape[0] * (self.size - 1))
        self._note(self.size - 1)
        return [[messages[0]] * self.size]

    def all_to_all(self, rows: Sequence[tf.Tensor]) -> Sequence[Received]:
        self.count(rows[0], self.size - 1)
        self._note(1)  # TensorFlow sends to all others at once
        return [[rows[0][:1]] * self.size]

    def all_reduce(self, vectors: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        self.count_all_reduce(vectors[0])
        self._note(2 * (self.size - 1))
        return [vectors[0] * self.size]

    def _note(self, rounds: int) -> None:
        # A branch sends the rest of a message that was longer than expected, which is seldom.
        if tf.compat.v1.get_default_graph() is self._graph:
            self.collectives += 1
            self.rounds += rounds
