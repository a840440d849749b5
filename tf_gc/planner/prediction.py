"""Predicts the bytes that a way to compress sends, and the time of its step."""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_gc.network.cluster_network import large_message
from tf_gc.network.group import Channel, Group, Received
from tf_gc.network.traffic import all_gather_bytes, all_reduce_bytes
from tf_gc.params import CompressionParams, Gradient, NoCompression
from tf_gc.planner.time_model import Compute, Link, step_seconds
from tf_gc.schedule import Schedule, make_schedule

STOCK = NoCompression()

# Length, values and indices of a sparse gradient are gathered one after the other.
_GATHERS_OF_SPARSE = 3


class SimulatedNetwork:
    """A network of workers of which only one exists: it gets its own messages back as everyone's.

    It is the `tf_gc.network.group.Network` of workers whose replicas are on devices of one kind.
    Its channels are one for each bucket that was reduced.
    """

    def __init__(self, link: Link, device: str) -> None:
        self.hosts = link.workers
        self.devices = (device,) * link.gpus
        self.channels: list[SimulatedChannel] = []
        self._link = link

    def rate(self) -> float:
        size = large_message(self.hosts)
        return 8 * size * (self.hosts - 1) / self._link.all_gather(size)

    def group(self, devices: Sequence[str]) -> Group:
        return Group((0,), self.hosts, self._open)

    def _open(self, bucket: int, options: object) -> "SimulatedChannel":
        self.channels.append(SimulatedChannel(self.hosts))
        return self.channels[-1]


class SimulatedChannel(Channel):
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


@dataclasses.dataclass(frozen=True)
class Gradients:
    """A model's gradients, `None` for a variable without one, and the device that has them.

    `sparse_bytes` has, by position, the bytes of sparse ones (`tf.IndexedSlices`), values and
    indices.
    """

    known: tuple[Gradient | None, ...]
    sparse_bytes: dict[int, int] = dataclasses.field(default_factory=dict)
    device: str = "CPU:0"


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of compressing, for one worker in one step.

    Seconds to encode, decode and add up, and for each bucket the bytes that a worker sends to all
    others together, in how many rounds of messages, in how many collectives and, if it has several
    GPUs, the bytes that one of them sends to the rest.
    """

    seconds: float
    sent: tuple[tuple[int, int, int] | tuple[int, int, int, int], ...]


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The time of a step, the bytes that a worker sends, and plan and wire of each bucket."""

    seconds: float
    sent_bytes: int
    plans: tuple[str, ...] = ()


def predict(
    params: CompressionParams,
    gradients: Gradients,
    compute: Compute,
    cost_of: Callable[[Schedule, SimulatedNetwork], Cost],
    link: Link,
) -> Prediction:
    """Predicts a step; `cost_of` a schedule's buckets is the cost on a simulated network."""
    replicas = link.replicas
    network = SimulatedNetwork(link, gradients.device)
    schedule = make_schedule(
        params, gradients.known, {spec: spec.on(network) for spec in params.specs()}
    )
    cost = cost_of(schedule, network)
    # Backpropagation reaches tables last.
    last = {min(schedule.compressed, default=None), *gradients.sparse_bytes}
    early = late = 0.0
    sent_bytes = in_full_precision = 0
    for bucket, sent in zip(schedule.buckets, cost.sent, strict=True):
        if last.isdisjoint(bucket.indices):
            early += link.seconds(*sent)
        else:
            late += link.seconds(*sent)
        sent_bytes += sent[0]
    for i in schedule.bypass:
        gradient = gradients.known[i]
        if i in gradients.sparse_bytes:
            gathered = all_gather_bytes(gradients.sparse_bytes[i], replicas)
            rounds = _GATHERS_OF_SPARSE * (replicas - 1)
            late += link.seconds(gathered, rounds, _GATHERS_OF_SPARSE)
            sent_bytes += gathered
        elif gradient is not None:
            in_full_precision += gradient.elements * gradient.dtype.size
    if in_full_precision:
        # TensorFlow sums them in one pack, which waits for the last of them.
        late += link.all_reduce(in_full_precision)
        sent_bytes += all_reduce_bytes(in_full_precision, replicas)
    plans = tuple(f"{bucket.reducer.plan}, {bucket.reducer.wire}" for bucket in schedule.buckets)
    return Prediction(step_seconds(compute, early, late, cost.seconds), sent_bytes, plans)
