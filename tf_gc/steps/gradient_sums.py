"""Sums of a step's gradients over all replicas: in full precision, compressed, in a warm-up."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tf_gc import _compat
from tf_gc.network.collectives import CollectiveOps
from tf_gc.network.group import Network, Replica, is_cpu
from tf_gc.observe.accounting import Pairs
from tf_gc.reducers.reducer import Reducer, Reduction
from tf_gc.schedule import Bucket, Schedule
from tf_gc.state.stream import Stream
from tf_gc.steps import warm_up
from tf_gc.steps.compression_state import CompressionState

# For each gradient, its sum on each local device: a tensor, or of rows a `tf.IndexedSlices`.
Sums: TypeAlias = list[list[Any]]


@dataclasses.dataclass(frozen=True)
class Batch:
    """Gradients of one stream that are reduced together.

    Attributes:
      pairs: each gradient, a value for each local replica, with its variable.
      stream: what they come from.
      options: a `tf.distribute.experimental.CommunicationOptions`.
    """

    pairs: Pairs
    stream: Stream
    options: Any

    def variables(self, first: Sequence[int]) -> list[Any]:
        """Returns all variables, first the ones whose gradients have these numbers."""
        order = [*first, *(i for i in range(len(self.pairs)) if i not in first)]
        variables = [self.pairs[i][1] for i in order]
        return [v for v in variables if isinstance(v, _compat.DistributedVariable)]


class GradientSums:
    """Builds sums of gradients over all replicas of a network.

    Attributes:
      network: the replicas.
      compression_state: the residuals.
    """

    def __init__(
        self,
        network: Network,
        stock: tf.distribute.CrossDeviceOps,
        compression_state: CompressionState,
    ) -> None:
        """Initializes the object.

        Args:
          network: the replicas.
          stock: sums in full precision.
          compression_state: the residuals.
        """
        self.network = network
        self.compression_state = compression_state
        self._stock = stock
        # A branch is one operation for TensorFlow. If that used the order of the stock
        # collectives, all that is summed in full precision would wait for the whole branch.
        self._stock_in_branches = stock.beside() if isinstance(stock, CollectiveOps) else stock

    @property
    def replicas(self) -> int:
        """The number of replicas, on all hosts."""
        return self.network.hosts * len(self.network.devices)

    def stock(self, pairs: Pairs, options: Any) -> list[Any]:
        """Returns each pair's sum by the stock ops."""
        return _stock_sums(self._stock, pairs, options)

    def compressed(self, number: int, bucket: Bucket, batch: Batch) -> Reduction:
        """Reduces a bucket of this number."""
        replicas = self._replicas_of(bucket, bucket.reducer, batch)
        return bucket.reducer.reduce(number, replicas, batch.options)

    def in_full_precision(self, number: int, bucket: Bucket, batch: Batch) -> Sums:
        """Returns the sums of a bucket of this number in full precision, in a branch."""
        reducer = bucket.reducer.in_full_precision
        if reducer is not None:
            replicas = self._replicas_of(bucket, reducer, batch)
            return by_gradient(reducer.reduce(number, replicas, batch.options))
        # Each bucket by itself: the stock ops copy what they sum at once.
        pairs = [batch.pairs[i] for i in bucket.indices]
        sums = _stock_sums(self._stock_in_branches, pairs, batch.options)
        return [_components(total) for total in sums]

    def in_warm_up(self, state: Any, schedule: Schedule, batch: Batch) -> Sums:
        """Returns the sums of a step in which the buckets that warm up are in full precision.

        Args:
          state: the state of the warm-up, which counts the step.
          schedule: what is sent how.
          batch: the gradients.
        """
        reports = []
        for component in state.values:
            with tf.device(component.device):
                reports.append(warm_up.report(component.read_value()))
        sums, warm = [], []
        for i, bucket in enumerate(schedule.buckets):
            if bucket.warm_up:
                of_bucket = self.in_full_precision(i, bucket, batch)
                warm += of_bucket
                sums += of_bucket
            else:
                sums += by_gradient(self.compressed(i, bucket, batch))
        report_pairs = [(_compat.PerReplica(reports), state)]
        reported = _components(*_stock_sums(self._stock_in_branches, report_pairs, batch.options))
        after: tf.Tensor | None = None
        for device, component in enumerate(state.values):
            with tf.device(component.device):
                # CPU devices, which share memory, have one of them do it for all.
                if after is None or not is_cpu(component.device):
                    mine = [components[device] for components in warm]
                    after = warm_up.after_step(component.read_value(), reported[device], mine)
                component.assign(after, read_value=False)
        return sums

    def _replicas_of(self, bucket: Bucket, reducer: Reducer, batch: Batch) -> list[Replica]:
        """Returns what each replica of this host contributes to a bucket, for a reducer of it."""
        of_bucket = [batch.pairs[i] for i in bucket.indices]
        variables = [variable for _, variable in of_bucket]
        state, residuals = self.compression_state, list[Sequence[tf.Variable]]()
        if reducer.keeps_residuals:
            residuals = [state.residuals_of(variable, batch.stream) for variable in variables]
        slots = [reducer.slot(variable.shape) for variable in variables]
        shared = [
            state.value(slot, batch.stream, variable).values
            for slot, variable in zip(slots, variables, strict=True)
            if slot is not None
        ]
        notes = state.notes(batch.stream, variables[0])
        return [
            Replica(
                device,
                [_shaped(value.values[r], variable) for value, variable in of_bucket],
                [residual[r] for residual in residuals],
                variables,
                [component[r] for component in shared],
                notes,
            )
            for r, device in enumerate(self.network.devices)
        ]


def _stock_sums(ops: tf.distribute.CrossDeviceOps, pairs: Pairs, options: Any) -> list[Any]:
    """Returns each pair's sum by stock ops."""
    # They concatenate what they get, and so take one dtype at a time.
    by_dtype: dict[tf.DType, list[int]] = {}
    for i, (value, _) in enumerate(pairs):
        by_dtype.setdefault(value.values[0].dtype, []).append(i)
    sums: list[Any] = [None] * len(pairs)
    for indices in by_dtype.values():
        reduced = ops.batch_reduce_implementation(
            tf.distribute.ReduceOp.SUM, [pairs[i] for i in indices], options
        )
        for i, value in zip(indices, reduced, strict=True):
            sums[i] = value
    return sums


def by_gradient(reduction: Reduction) -> Sums:
    """Returns the sums of a bucket: for each gradient, one on each local device."""
    return [list(components) for components in zip(*reduction.sums, strict=True)]


def _components(total: Any) -> list[tf.Tensor]:
    """Returns a sum on each local device; TensorFlow does not wrap a single replica's."""
    return list(getattr(total, "values", [total]))


def _shaped(gradient: Any, variable: Any) -> Any:
    """Returns a gradient that knows its shape; one of a loop, say, may not."""
    if isinstance(gradient, tf.IndexedSlices):
        gradient.values.set_shape([None, *variable.shape[1:]])
    else:
        gradient.set_shape(variable.shape)
    return gradient
