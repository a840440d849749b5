"""The members of a reduction, and the channels by which messages get from one to another."""

import abc
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import tensorflow as tf

from tf_gc.network.traffic import all_reduce_bytes

# The messages of all members in the order of ranks, as the rows of one tensor or of several.
Received: TypeAlias = Sequence[tf.Tensor]

# A number of bytes: a tensor, int64, where only the step itself knows it.
Bytes: TypeAlias = int | tf.Tensor


@dataclasses.dataclass(frozen=True)
class Replica:
    """A replica of this host, with its part of the sum of a bucket; variables on its device."""

    device: str
    gradients: Sequence[Any]  # the bucket's tensors, or of a bucket of rows `tf.IndexedSlices`
    residuals: Sequence[tf.Variable]  # of the gradients; none if nothing is kept
    variables: Sequence[Any] = ()  # the distributed ones to which the gradients belong
    shared: Sequence[tf.Variable] = ()  # for each gradient the state of `Reducer.slot`, if any
    # Remembers things from step to step that are not saved. It ends with the bucket's first
    # variable or the stream of the gradients.
    notes: dict[Any, Any] = dataclasses.field(default_factory=dict)


class Channel(abc.ABC):
    """Moves the messages of one bucket, int64 [rows, words], between the members of a group.

    Its methods take what each member of this host sends, in the order of its members, and return
    what each of them receives. All members, `size` of them on all hosts, send tensors of one shape.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._counted: Bytes = 0

    @property
    def sent_bytes(self) -> Bytes:
        """The bytes that each member has sent through the channel so far."""
        return self._counted

    @property
    def most_bytes(self) -> Bytes:
        """An upper bound, where only the step itself knows `sent_bytes`."""
        return self.sent_bytes

    @abc.abstractmethod
    def all_gather(self, messages: Sequence[tf.Tensor]) -> Sequence[Received]:
        """Gives each member of this host the messages of all members."""

    def all_gather_sums(self, sums: Sequence[tf.Tensor]) -> Sequence[Received]:
        """Does the same with the messages of `Codec.sum_shard`, which may be of another kind."""
        return self.all_gather(sums)

    @abc.abstractmethod
    def all_to_all(self, rows: Sequence[tf.Tensor]) -> Sequence[Received]:
        """Gives each member of this host the row, of [size, words] of every member, of its rank."""

    @abc.abstractmethod
    def all_reduce(self, vectors: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        """Gives each member of this host the sum of all vectors, float32 [n], the same bits."""

    def count_all_reduce(self, vector: tf.Tensor) -> None:
        self._counted += all_reduce_bytes(vector.shape[0] * vector.dtype.size, self.size)

    def count(self, messages: tf.Tensor, rows: int) -> None:
        """Counts `rows` rows of a member's messages; every way of sending calls it."""
        elements = messages.shape.num_elements()
        if elements is None:
            with tf.device(messages.device):  # elsewhere it would copy them
                elements = tf.size(messages, tf.int64)
        # Where only the step knows it, TensorFlow would compute with a number on a GPU, and wait.
        with tf.device(cpu_of(messages.device)):
            self._counted += elements * messages.dtype.size // messages.shape[0] * rows

    def count_as_well(self, sent_bytes: Bytes) -> None:
        """Counts what was sent in `counted_apart`, if it was."""
        self._counted += sent_bytes

    def counted_apart(self, send: Callable[[], Sequence[Received]]) -> tuple[Any, Bytes]:
        """Returns what `send` does, and the bytes that each member has sent in it.

        It is for a branch of a `tf.cond`, where its result has to stay.
        """
        before, self._counted = self._counted, 0
        received = send()
        sent, self._counted = self._counted, before
        return received, sent


class LocalChannel(Channel):
    """The channel if all members are on this host: TensorFlow copies a tensor to its users."""

    def all_gather(self, messages: Sequence[tf.Tensor]) -> Sequence[Received]:
        self.count(messages[0], messages[0].shape[0] * (self.size - 1))
        return [messages] * len(messages)

    def all_to_all(self, rows: Sequence[tf.Tensor]) -> Sequence[Received]:
        self.count(rows[0], self.size - 1)
        # Elsewhere TensorFlow would slice on the first GPU, and all messages would go there.
        cut = on_devices(rows, lambda sent: [sent[i : i + 1] for i in range(len(rows))])
        return [list(received) for received in zip(*cut, strict=True)]

    def all_reduce(self, vectors: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        self.count_all_reduce(vectors[0])
        return once_per_host(vectors, lambda _: sum_in_order(vectors))


def sum_in_order(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the sum of tensors of one shape, added in the order in which they are given.

    `tf.add_n` begins with a tensor whose memory it may reuse. Which one that is depends on what
    other ops are done with, so two runs of a program could get different sums of three tensors.
    """
    return tf.add_n(tensors) if len(tensors) < 3 else tf.reduce_sum(tf.stack(tensors), axis=0)


@dataclasses.dataclass(frozen=True)
class Group:
    """Replicas that send messages to each other."""

    ranks: tuple[int, ...]  # among all members, of those on this host
    size: int  # the number of members, on all hosts
    # Opens a channel for the messages of a bucket, given the bucket's number and the
    # `CommunicationOptions`. Buckets are independent, so their transfers may overlap.
    open: Callable[[int, Any], Channel]
    # The CPUs of the same hosts as a group, where each host has one member and that is a GPU.
    on_cpus: "Group | None" = None


class Network(Protocol):
    """The replicas of all hosts, and how they reach each other."""

    hosts: int
    devices: tuple[str, ...]  # of this host's replicas; the other hosts have as many

    def rate(self) -> float:
        """Returns the bits per second at which the slowest host sends to others, measured once.

        This is a collective: all workers call it.
        """

    def group(self, devices: Sequence[str]) -> Group:
        """Returns the group of some devices of this host and their like on the other hosts.

        This may be a collective: all workers make the same groups in the same order.
        """


class LocalNetwork:
    """The replicas of one host."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.hosts = 1
        self.devices = tuple(devices)

    def rate(self) -> float:
        return float("inf")  # nothing is sent to another host

    def group(self, devices: Sequence[str]) -> Group:
        size = len(devices)
        return Group(tuple(range(size)), size, lambda bucket, options: LocalChannel(size))


def on_devices(owners: Iterable[Any], make: Callable[..., Any], *more: Any) -> list[Any]:
    """Calls a function with each replica, tensor or variable, on its device.

    `more` are iterables, of which the function also gets the elements in the same place.
    """
    results = []
    for owner, *others in zip(owners, *more, strict=True):
        with tf.device(owner.device):
            results.append(make(owner, *others))
    return results


def once_per_host(owners: Iterable[Any], make: Callable[..., Any], *more: Any) -> list[Any]:
    """Does what `on_devices` does. CPU devices share memory, so one makes it for all of them."""
    on_host: list[Any] = []

    def made(owner: Any, *others: Any) -> Any:
        if not is_cpu(owner.device):
            return make(owner, *others)
        if not on_host:
            on_host.append(make(owner, *others))
            return on_host[0]
        # TensorFlow passes a tensor between CPU devices without a copy.
        return tf.nest.map_structure(tf.identity, on_host[0])

    return on_devices(owners, made, *more)


def is_cpu(device: str) -> bool:
    """Whether a device uses the host's memory."""
    return tf.DeviceSpec.from_string(device).device_type == "CPU"


def cpu_of(device: str) -> str:
    """Returns the device itself if it is a CPU, else the first CPU of its host."""
    spec = tf.DeviceSpec.from_string(device)
    if spec.device_type in (None, "CPU"):
        return device
    return str(spec.replace(device_type="CPU", device_index=0).to_string())
