"""What each choice of compression sends, and how long its step takes."""

import dataclasses
from collections.abc import Mapping, Sequence

import tensorflow as tf

from tf_gc.network.group import Channel, Group, Network
from tf_gc.network.traffic import all_gather_bytes, all_reduce_bytes
from tf_gc.params import CompressionParams, Gradient, NoCompression, Quantized
from tf_gc.planner.time_model import SLOWDOWN, Compute, Link, Transfer, step_seconds
from tf_gc.reducers.low_rank import FactorsReducer
from tf_gc.reducers.plan import FlatPlan, Plan
from tf_gc.reducers.rows import RowsReducer
from tf_gc.schedule import Bucket, Schedule, make_schedule

# Length, values and indices of a sparse gradient are gathered one after the other.
_GATHERS_OF_SPARSE = 3


@dataclasses.dataclass(frozen=True)
class Choice:
    """A way to send gradients.

    Attributes:
      name: what the table calls it.
      params: the `compression_params`.
    """

    name: str
    params: CompressionParams


STOCK = Choice("stock", NoCompression())
CHOICES = tuple(
    Choice(f"{bits} bit{'s' if bits > 1 else ''}", Quantized(bits)) for bits in range(1, 5)
)


@dataclasses.dataclass(frozen=True)
class Gradients:
    """What is known of a model's gradients.

    Attributes:
      gradients: in the order of the variables, `None` for a variable without one.
      sparse_bytes: what each sparse one (`tf.IndexedSlices`) takes, in this order: values and
        indices.
      state_bytes: what layers update by themselves in each replica, which tf_gc averages.
      device_type: the device that computes them, "CPU" or "GPU".
    """

    gradients: tuple[Gradient | None, ...]
    sparse_bytes: tuple[int, ...] = ()
    state_bytes: int = 0
    device_type: str = "CPU"

    def bytes_of_sparse(self) -> dict[int, int]:
        """Returns `sparse_bytes` by the positions of the gradients."""
        sparse = [i for i, gradient in enumerate(self.gradients) if gradient and gradient.sparse]
        return dict(zip(sparse, self.sparse_bytes, strict=True))


@dataclasses.dataclass(frozen=True)
class CodecCost:
    """What a codec and a wire take on this machine, in seconds and bits for each element.

    For rows it is what all sparse gradients take together, as if they were one element.

    Attributes:
      encode: to encode an element, and to pack it.
      unpack: to unpack a message of another worker.
      decode: to write a sum of messages.
      add: to read one message and add it up.
      bits: what a message takes on the wire, measured too, since it may depend on the gradients.
    """

    encode: float
    unpack: float
    decode: float
    add: float
    bits: float

    def scaled(self, factor: float) -> "CodecCost":
        """Returns the same on a machine that takes `factor` times as long."""
        return dataclasses.replace(
            self,
            encode=factor * self.encode,
            unpack=factor * self.unpack,
            decode=factor * self.decode,
            add=factor * self.add,
        )

    def sum_of(self, workers: int) -> float:
        """Returns the time to sum all messages, of which a worker does not unpack its own."""
        return (workers - 1) * self.unpack + workers * self.add + self.decode


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What is predicted for a choice.

    Attributes:
      seconds: the time of a step.
      sent_bytes: what a worker sends in a step.
      plans: the names of the plans, in the order of the buckets; none if nothing is compressed.
      wires: the wires, in the same order.
    """

    seconds: float
    sent_bytes: float
    plans: tuple[str, ...] = ()
    wires: tuple[str, ...] = ()


class _Hosts:
    """The network of workers that do not exist yet, one replica each."""

    def __init__(self, link: Link, device_type: str) -> None:
        self.hosts = link.workers
        self.devices: tuple[str, ...] = (f"/job:worker/device:{device_type}:0",)
        self._link = link

    def rate(self) -> float:
        # What tf_gc/network/rate.py would measure.
        size = 1 << 20
        return 8 * size * (self.hosts - 1) / self._link.all_gather(size)

    def group(self, devices: Sequence[str]) -> Group:
        del devices
        return Group((0,), self.hosts, _refuse)


def _refuse(bucket: int, options: object) -> Channel:
    raise RuntimeError(f"the planner sends nothing: bucket {bucket}, {options!r}")


def schedule_of(choice: Choice, gradients: Gradients, link: Link) -> Schedule:
    """Returns what a choice sends how, as the strategies would decide it.

    Raises:
      ValueError: if the choice forces a plan that is of no use.
    """
    network = _Hosts(link, gradients.device_type)
    return make_schedule(choice.params, gradients.gradients, lambda spec: spec.on(network))


def predict(
    choice: Choice,
    gradients: Gradients,
    compute: Compute,
    costs: Mapping[str, Mapping[str, CodecCost]],
    link: Link,
    slowdown: float = SLOWDOWN,
) -> Prediction:
    """Predicts the step of a choice.

    Args:
      choice: how gradients are sent.
      gradients: the model's gradients.
      compute: what a worker computes.
      costs: by the name of a choice and by wire, what these take; the stock strategy needs none.
      link: the links and the number of workers.
      slowdown: as in `step_seconds`.

    Raises:
      KeyError: if the choice compresses something and has no costs.
    """
    if link.workers == 1:
        return Prediction(compute.total, 0.0)
    schedule = schedule_of(choice, gradients, link)
    first = min(schedule.compressed, default=None)
    network = _Hosts(link, gradients.device_type)
    transfers, sent = [], 0.0
    for bucket in schedule.buckets:
        cost = costs[choice.name][bucket.reducer.wire]
        if isinstance(bucket.reducer, RowsReducer):
            # Backpropagation reaches tables last.
            gathered = all_gather_bytes(int(cost.bits // 8), link.workers)
            seconds = link.seconds(gathered, link.workers - 1, 1)
            transfers.append(Transfer(cost.encode, seconds, cost.sum_of(link.workers), early=False))
            sent += gathered
            continue
        early = first not in bucket.indices
        if isinstance(bucket.reducer, FactorsReducer):
            factor = cost.bits * bucket.elements / 8
            encode, decode = (bucket.elements * each for each in (cost.encode, cost.decode))
            # P and Q, one after the other.
            transfers.append(Transfer(encode, 2 * link.all_reduce(factor / 2), decode, early))
            sent += all_reduce_bytes(int(factor), link.workers)
            continue
        size = _sent_bytes(bucket, cost, network)
        transfers.append(_of_bucket(bucket, cost, link, size, early))
        sent += size
    full = [gradient for i in schedule.bypass if (gradient := gradients.gradients[i]) is not None]
    for size in _packs([gradient for gradient in full if not gradient.sparse]):
        # TensorFlow sums these in one pack, which waits for the last of them.
        transfers.append(Transfer(0, link.all_reduce(size), 0, early=False))
        sent += all_reduce_bytes(size, link.workers)
    for index, size in gradients.bytes_of_sparse().items():
        if index not in schedule.bypass:
            continue
        gathered = all_gather_bytes(size, link.workers)
        rounds = _GATHERS_OF_SPARSE * (link.workers - 1)
        seconds = link.seconds(gathered, rounds, _GATHERS_OF_SPARSE)
        transfers.append(Transfer(0, seconds, 0, early=False))
        sent += gathered
    if choice.params.specs() and gradients.state_bytes:
        transfers.append(Transfer(0, link.all_reduce(gradients.state_bytes), 0, early=False))
    return Prediction(
        step_seconds(compute, transfers, slowdown),
        sent,
        plans=tuple(bucket.reducer.plan for bucket in schedule.buckets),
        wires=tuple(bucket.reducer.wire for bucket in schedule.buckets),
    )


def _packs(gradients: Sequence[Gradient]) -> list[int]:
    """Returns the bytes of what the stock ops sum at once: all gradients of a dtype."""
    sizes: dict[tf.DType, int] = {}
    for gradient in gradients:
        size = gradient.elements * gradient.dtype.size
        sizes[gradient.dtype] = sizes.get(gradient.dtype, 0) + size
    return list(sizes.values())


def _sent_bytes(bucket: Bucket, cost: CodecCost, network: Network) -> float:
    """Returns what a worker sends for a bucket."""
    codes = codes_of(bucket)
    bits = codes.cost(codes.codec, network)
    # What a plan sends is in proportion to what a message takes.
    return bits * (cost.bits / codes.codec.bits(1)) * bucket.elements / 8


def codes_of(bucket: Bucket) -> Plan:
    """Returns the reducer of a bucket that sends codes.

    Raises:
      TypeError: if it sends something else, of which the planner knows no costs.
    """
    if not isinstance(bucket.reducer, Plan):
        raise TypeError(f"the planner knows no costs of {bucket.reducer}")
    return bucket.reducer


def _of_bucket(bucket: Bucket, cost: CodecCost, link: Link, size: float, early: bool) -> Transfer:
    """Returns what sums a bucket."""
    codes, elements, workers = codes_of(bucket), bucket.elements, link.workers
    plan = codes
    if not isinstance(plan, FlatPlan):
        raise TypeError(f"the planner knows no collectives of the plan {plan.plan!r}")
    seconds = link.seconds(size, plan.rounds(workers), plan.collectives)
    decode = cost.sum_of(workers)
    if plan.by_shards:
        # A worker adds up its shard, encodes the sum, maybe in more bits, and decodes all sums.
        longer = codes.codec.bits(workers) / codes.codec.bits(1)
        of_shard = (workers - 1) * cost.unpack + workers * cost.add + longer * cost.encode
        of_others = (workers - 1) * longer * cost.unpack
        decode = (of_shard + of_others) / workers + cost.add + cost.decode
    return Transfer(elements * cost.encode, seconds, elements * decode, early)
