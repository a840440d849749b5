"""The reducer of rows: sums gradients that are `tf.IndexedSlices`, as embeddings have them.

Every replica merges the rows that occur several times in its gradient, encodes them, each with a
scale of its own, gets the messages of all replicas, and adds them up. The sum has each row once, in
ascending order, so that an optimizer that updates rows alone still does.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc import ops
from tf_gc.gradients import path_of
from tf_gc.network.group import (
    Channel,
    Group,
    Network,
    Received,
    Replica,
    decode_once_per_host,
    is_cpu,
)
from tf_gc.network.unequal import UnequalLengths
from tf_gc.ops.rows import EXACT
from tf_gc.reducers.all_gather import AllGather
from tf_gc.reducers.reducer import Push, Reducer, Reduction, Sender, Spec

ROWS = "rows"

# The next message may be longer than this step's longest by one in _LONGER words. The guess falls
# by one in _FALLS_BY a step at most: else more steps need a second collective (docs/design.md).
_LONGER = 16
_FALLS_BY = 64


@dataclasses.dataclass(frozen=True)
class Rows(Spec):
    """Sums gradients of tables row by row, by the codec of a name or `EXACT`.

    One layer has residuals as large as the table; two have none: a row is then off by what two
    messages of codes leave of it.
    """

    kind: str
    layers: int = 1
    warm_up: bool = False

    in_one_bucket = True

    def on(self, network: Network) -> "RowsReducer | str":
        if not all(is_cpu(device) for device in network.devices):
            return "are sparse (tf.IndexedSlices), which are compressed on CPUs only"
        return RowsReducer(self, network)

    def push(self) -> "RowsPush":
        return RowsPush(self)


class _SendsRows(Sender):
    def __init__(self, spec: Rows) -> None:
        self._spec = spec
        self.keeps_residuals = spec.kind != EXACT and spec.layers == 1
        scales = "" if spec.kind == EXACT else " (a scale for each row)"
        layers = "" if spec.layers == 1 else ", in two layers without residuals"
        self.name = f"{spec.kind}{scales}{layers}"
        self.wire = ROWS
        if spec.layers > 1:
            self.caution = (
                "too large for a residual (sparse_residual_bytes): rows are sent in two layers, "
                "and what those leave of them is not kept"
            )

    def message(
        self,
        gradients: Sequence[tf.IndexedSlices],
        residuals: Sequence[Any],
        shapes: Sequence[Sequence[int]],
        names: Sequence[str],
    ) -> tf.Tensor:
        spec, kept = self._spec, residuals if self.keeps_residuals else ()
        return ops.encode_rows(gradients, kept, shapes, spec.kind, spec.layers, names)

    def sums(
        self,
        shapes: Sequence[Sequence[int]],
        messages: Received,
        like: Sequence[tf.IndexedSlices],
    ) -> list[tf.IndexedSlices]:
        spec = self._spec
        sums = ops.decode_rows(messages, shapes, like[0].dtype, spec.kind, spec.layers)
        return [
            tf.IndexedSlices(total.values, tf.cast(total.indices, g.indices.dtype), g.dense_shape)
            for total, g in zip(sums, like, strict=True)
        ]


class RowsPush(_SendsRows, Push):
    """Sends rows to a server."""

    def encode(
        self,
        gradients: Sequence[tf.IndexedSlices],
        residuals: Sequence[Any],
        variables: Sequence[Any],
    ) -> tuple[tf.Tensor, int]:
        names = [path_of(variable) for variable in variables]
        return self.message(gradients, residuals, _shapes(variables), names), 0

    def decode(
        self,
        message: tf.Tensor,
        size: int,
        gradients: Sequence[tf.IndexedSlices],
        variables: Sequence[Any],
    ) -> list[tf.IndexedSlices]:
        del size
        shapes = _shapes(variables)
        return [
            tf.IndexedSlices(rows.values, rows.indices, tf.constant(shape, tf.int64))
            for rows, shape in zip(self.sums(shapes, [message], gradients), shapes, strict=True)
        ]

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
        shapes = _shapes(first.variables)
        names = [path_of(variable) for variable in first.variables]
        messages = []
        for replica in replicas:
            with tf.device(replica.device):
                messages.append(self.message(replica.gradients, replica.residuals, shapes, names))

        decode = functools.partial(self.sums, shapes)

        def count_sent() -> tf.Tensor:
            own = decode([messages[0]], first.gradients)
            return tf.add_n([tf.math.count_nonzero(rows.values) for rows in own])

        received = self._gathered(channel, messages, first.notes)
        stock = sum(_bytes(gradient) for gradient in first.gradients)
        return Reduction(
            decode_once_per_host(replicas, received, decode),
            first,
            count_sent,
            channel.sent_bytes,
            stock_bytes=(self._group.size - 1) * stock,
        )

    def _gathered(
        self, channel: Channel, messages: Sequence[tf.Tensor], notes: dict[Any, Any]
    ) -> Sequence[Received]:
        """Returns for each member of this host the messages of all members."""
        if self._network.hosts == 1:
            return channel.all_gather(messages)
        unequal = UnequalLengths(channel, self._group.ranks, notes, enough_for_most)
        # All members get the same, and CPU devices share memory.
        (received,) = unequal.sent(
            [(message, tf.shape(message, tf.int64)[1:]) for message in messages],
            1,
            lambda sent: channel.all_gather(sent)[:1],
            (ROWS, self._spec),
        )
        received.insert(min(self._group.ranks[0], 1), messages[0])
        return [received] * len(messages)


def enough_for_most(longest: tf.Tensor, sent: tf.Tensor) -> tf.Tensor:
    """Returns how many words to send in the next step (`tf_gc.network.unequal.Guess`)."""
    return tf.maximum(longest + longest // _LONGER, sent - sent // _FALLS_BY)


def _shapes(variables: Sequence[Any]) -> list[tuple[int, ...]]:
    return [tuple(variable.shape) for variable in variables]


def _bytes(gradient: tf.IndexedSlices) -> tf.Tensor:
    parts = (gradient.values, gradient.indices)
    return tf.add_n([tf.size(part, tf.int64) * part.dtype.size for part in parts])
