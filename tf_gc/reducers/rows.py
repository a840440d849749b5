"""The reducer of rows: sums gradients that are `tf.IndexedSlices`, as embeddings have them.

Every replica merges equal rows of its gradient, encodes each with a scale of its own, and adds up
the messages of all. The sum has each row once, in ascending order, for optimizers that update rows.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc import ops
from tf_gc.codecs.native import BITS, keeps_residuals
from tf_gc.gradients import path_of
from tf_gc.network.group import (
    Channel,
    Group,
    Network,
    Received,
    Replica,
    cpu_of,
    is_cpu,
    on_devices,
    once_per_host,
)
from tf_gc.network.unequal import UnequalLengths
from tf_gc.ops.rows import EXACT
from tf_gc.reducers.flat_plans import AllGather
from tf_gc.reducers.reducer import Push, Reducer, Reduction, Sender, Spec

ROWS = "rows"

# The next message may be longer than this step's longest by one in _LONGER words. The guess falls
# by one in _FALLS_BY a step at most: else more steps need a second collective (docs/design.md).
_LONGER = 16
_FALLS_BY = 64


@dataclasses.dataclass(frozen=True)
class Rows(Spec):
    """Sums gradients of tables row by row."""

    kind: str  # the name of a codec, or `EXACT`
    # 1: with residuals as large as the table, if the codec keeps any; 2: without, off by what both
    # leave.
    layers: int = 1
    warm_up: bool = False
    residual: str = "float32"  # or "bfloat16"
    on_gpus: bool = False  # whether GPUs compress them as well: not measured

    in_one_bucket = True

    def on(self, network: Network) -> "RowsReducer | str":
        if not self.on_gpus and not all(is_cpu(device) for device in network.devices):
            return "are sparse (tf.IndexedSlices), which GPUs compress with sparse=True only"
        return RowsReducer(self, network)

    def push(self) -> "RowsPush":
        return RowsPush(self)


class _SendsRows(Sender):
    def __init__(self, spec: Rows) -> None:
        self._spec = spec
        keeps = spec.kind != EXACT and spec.layers == 1 and keeps_residuals(spec.kind)
        self.residual_dtype = tf.as_dtype(spec.residual) if keeps else None
        scales = EXACT if spec.kind == EXACT else f"{BITS[spec.kind]} (a scale for each row)"
        layers = "" if spec.layers == 1 else ", in two layers without residuals"
        self.name = f"{scales}{layers}"
        self.wire = ROWS
        if spec.layers > 1:
            self.caution = (
                "too large for a residual (sparse_residual_bytes): rows are sent in two messages, "
                "and the rounding error that remains is dropped"
            )

    def message(self, replica: Replica) -> tf.Tensor:
        spec, kept = self._spec, replica.residuals if self.residual_dtype else ()
        names = [path_of(variable) for variable in replica.variables]
        shapes = _shapes(replica)
        return ops.encode_rows(replica.gradients, kept, shapes, spec.kind, spec.layers, names)

    def sums(self, replica: Replica, messages: Received) -> list[tf.IndexedSlices]:
        spec, shapes, like = self._spec, _shapes(replica), replica.gradients
        sums = ops.decode_rows(messages, shapes, like[0].dtype, spec.kind, spec.layers)
        return [
            tf.IndexedSlices(
                total.values, tf.cast(total.indices, g.indices.dtype), tf.constant(shape, tf.int64)
            )
            for total, g, shape in zip(sums, like, shapes, strict=True)
        ]


def _shapes(replica: Replica) -> list[tuple[int, ...]]:
    return [tuple(variable.shape) for variable in replica.variables]


class RowsPush(_SendsRows, Push):
    """Sends rows to a server."""

    def encode(self, worker: Replica) -> tuple[tf.Tensor, int]:
        return self.message(worker), 0

    def decode(self, message: tf.Tensor, size: int, worker: Replica) -> list[tf.IndexedSlices]:
        del size
        return self.sums(worker, [message])

    def in_full_precision(self, dtype: tf.DType) -> "RowsPush":
        del dtype
        return RowsPush(Rows(EXACT))


class RowsReducer(_SendsRows, Reducer):
    """Sends rows to all replicas."""

    plan = AllGather.plan

    def __init__(self, spec: Rows, network: Network) -> None:
        super().__init__(spec)
        self._network = network
        self._group: Group = network.group(network.devices)

    @functools.cached_property
    def in_full_precision(self) -> "RowsReducer":
        return RowsReducer(Rows(EXACT), self._network)

    def reduce(self, bucket: int, replicas: Sequence[Replica], options: Any) -> Reduction:
        channel = self._group.open(bucket, options)
        first = replicas[0]
        messages = on_devices(replicas, self.message)

        def count_sent() -> tf.Tensor:
            own = self.sums(first, [messages[0]])
            return tf.add_n([tf.math.count_nonzero(rows.values) for rows in own])

        received = self._gathered(channel, messages, first.notes)
        parts = [part for g in first.gradients for part in (g.values, g.indices)]
        with tf.device(first.device):
            sizes = [tf.size(part, tf.int64) for part in parts]
        with tf.device(cpu_of(first.device)):
            bytes_of_parts = [n * part.dtype.size for n, part in zip(sizes, parts, strict=True)]
            stock = (self._group.size - 1) * tf.add_n(bytes_of_parts)
        return Reduction(
            once_per_host(replicas, self.sums, received),
            first,
            count_sent,
            channel.sent_bytes,
            stock_bytes=stock,
        )

    def _gathered(
        self, channel: Channel, messages: Sequence[tf.Tensor], notes: dict[Any, Any]
    ) -> Sequence[Received]:
        """Returns for each member of this host the messages of all members."""
        if self._network.hosts == 1:
            return channel.all_gather(messages)
        unequal = UnequalLengths(channel, self._group.ranks, notes, _enough_for_most)
        # All members get the same. CPU devices share memory, and GPUs copy it from the first.
        (received,) = unequal.sent(
            [(message, tf.shape(message, tf.int64)[1:]) for message in messages],
            1,
            lambda sent: channel.all_gather(sent)[:1],
            (ROWS, self._spec),
        )
        received.insert(min(self._group.ranks[0], 1), messages[0])
        return [received] * len(messages)


def _enough_for_most(longest: tf.Tensor, sent: tf.Tensor) -> tf.Tensor:
    return tf.maximum(longest + longest // _LONGER, sent - sent // _FALLS_BY)
