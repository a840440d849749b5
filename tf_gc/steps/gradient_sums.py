"""Sums of gradients over all replicas by the stock ops, and the replicas' parts of a bucket."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tf_gc import _compat
from tf_gc.network.collectives import CollectiveOps
from tf_gc.network.group import Network, Replica
from tf_gc.observe.accounting import Pairs
from tf_gc.reducers.reducer import Reduction
from tf_gc.schedule import Bucket
from tf_gc.state.stream import Stream
from tf_gc.steps.compression_state import CompressionState

# For each gradient, its sum on each local device: a tensor, or of rows a `tf.IndexedSlices`.
Sums: TypeAlias = list[list[Any]]


class GradientSums:
    """Sums gradients over all replicas of a network; `replicas` are those on all hosts."""

    def __init__(
        self,
        network: Network,
        stock: tf.distribute.CrossDeviceOps,
        compression_state: CompressionState,
    ) -> None:
        self.network = network
        self.compression_state = compression_state
        self.replicas = network.hosts * len(network.devices)
        self._stock = stock
        # A branch is one operation for TensorFlow. If that used the order of the stock
        # collectives, all that is summed in full precision would wait for the whole branch.
        self._stock_in_branches = stock.beside() if isinstance(stock, CollectiveOps) else stock

    def stock(self, pairs: Pairs, options: Any, in_branch: bool = False) -> list[Any]:
        """Returns each pair's sum by the stock ops."""
        stock = self._stock_in_branches if in_branch else self._stock
        # They concatenate what they get, and so take one dtype at a time.
        by_dtype: dict[tf.DType, list[int]] = {}
        for i, (value, _) in enumerate(pairs):
            by_dtype.setdefault(value.values[0].dtype, []).append(i)
        sums: list[Any] = [None] * len(pairs)
        for indices in by_dtype.values():
            reduced = stock.batch_reduce_implementation(
                tf.distribute.ReduceOp.SUM, [pairs[i] for i in indices], options
            )
            for i, value in zip(indices, reduced, strict=True):
                sums[i] = value
        return sums

    def in_branch(self, values: Sequence[Any], variables: Sequence[Any], options: Any) -> Sums:
        """Returns the sums by the stock ops of values, one for each local replica, in a branch."""
        parts = [_compat.PerReplica(tuple(of_variable)) for of_variable in values]
        sums = self.stock(list(zip(parts, variables, strict=True)), options, in_branch=True)
        # TensorFlow does not wrap a single replica's.
        return [list(getattr(total, "values", [total])) for total in sums]

    def in_full_precision(
        self, number: int, bucket: Bucket, replicas: Sequence[Replica], options: Any
    ) -> Sums:
        """Returns the sums of a bucket of this number in full precision, in a branch."""
        reducer = bucket.reducer.in_full_precision
        if reducer is not None:
            return by_gradient(reducer.reduce(number, replicas, options))
        # Each bucket by itself: the stock ops copy what they sum at once.
        gradients = list(zip(*(replica.gradients for replica in replicas), strict=True))
        return self.in_branch(gradients, replicas[0].variables, options)

    def replicas_of(self, bucket: Bucket, pairs: Pairs, stream: Stream) -> list[Replica]:
        """Returns what each replica of this host contributes to a bucket."""
        values, variables = zip(*(pairs[i] for i in bucket.indices), strict=True)
        state, reducer = self.compression_state, bucket.reducer
        residuals: list[Any] = []
        if reducer.keeps_residuals:
            residuals = [state.residuals_of(variable, stream) for variable in variables]
        slots = [reducer.slot(variable.shape) for variable in variables]
        shared = [
            state.value(slot, stream, variable).values
            for slot, variable in zip(slots, variables, strict=True)
            if slot is not None
        ]
        notes = state.notes(stream, variables[0])
        return [
            Replica(
                device,
                [_shaped(v.values[r], to) for v, to in zip(values, variables, strict=True)],
                [residual[r] for residual in residuals],
                variables,
                [component[r] for component in shared],
                notes,
            )
            for r, device in enumerate(self.network.devices)
        ]


def by_gradient(reduction: Reduction) -> Sums:
    """Returns the sums of a bucket: for each gradient, one on each local device."""
    return [list(components) for components in zip(*reduction.sums, strict=True)]


def _shaped(gradient: Any, variable: Any) -> Any:
    """Returns a gradient that knows its shape; one of a loop, say, may not."""
    if isinstance(gradient, tf.IndexedSlices):
        gradient.values.set_shape([None, *variable.shape[1:]])
    else:
        gradient.set_shape(variable.shape)
    return gradient
