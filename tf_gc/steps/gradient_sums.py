"""The sums of a step's gradients: taken apart by how they are sent, and put together."""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_gc import _compat
from tf_gc.gradients import gradient_of, path_of
from tf_gc.network.collectives import CollectiveOps
from tf_gc.network.group import Network, Replica, on_devices, once_per_host
from tf_gc.observe.accounting import (
    Pairs,
    warn_of_unmatched_patterns,
    warn_that_nothing_is_compressed,
)
from tf_gc.observe.measurement import Measurement
from tf_gc.observe.stream_steps import StreamSteps
from tf_gc.params import CompressionParams, Gradient, Uncompressed
from tf_gc.params.patterns import Pattern
from tf_gc.reducers.reducer import Reducer, Reduction, Spec
from tf_gc.schedule import Bucket, Schedule, make_schedule
from tf_gc.state.registry import Slot
from tf_gc.state.stream import Stream, current_stream
from tf_gc.steps import warm_up
from tf_gc.steps.compression_state import CompressionState

_SUM = tf.distribute.ReduceOp.SUM


@dataclasses.dataclass(eq=False)
class Step:
    """The gradients of one step, of one stream, and what the replicas of this host contribute."""

    pairs: Pairs  # each gradient, a value for each local replica, with its variable
    schedule: Schedule
    variables: Sequence[Any]  # those whose gradients are compressed first
    replicas: Sequence[Sequence[Replica]]  # of each bucket
    stream: Stream
    recorded: StreamSteps  # what is measured of steps like this one
    options: Any  # a `tf.distribute.experimental.CommunicationOptions`


@dataclasses.dataclass(eq=False)
class GradientSums:
    """Sums gradients over all replicas of a network.

    Where methods return the sums of buckets, those are `Reduction.sums`, one for each bucket.
    """

    params: CompressionParams
    network: Network
    senders: Mapping[Spec, Reducer | str]  # for each spec of the params
    stock: tf.distribute.CrossDeviceOps
    state: CompressionState
    measurement: Measurement

    def __post_init__(self) -> None:
        self.replicas = self.network.hosts * len(self.network.devices)  # on all hosts
        # A branch is one operation for TensorFlow. If that used the order of the stock
        # collectives, all that is summed in full precision would wait for the whole branch. Only
        # sums of gradients may take their keys in turn.
        is_collective = isinstance(self.stock, CollectiveOps)
        self._stock_in_branches = self.stock.beside() if is_collective else self.stock
        self._stock = self.stock.beside() if is_collective else self.stock
        self._has_warned = False  # that nothing is compressed
        self._unmatched: set[Pattern] = set()  # of which a warning was logged

    def sum(self, pairs: Pairs, options: Any) -> list[Any]:
        """Returns the sum of each gradient; a gradient is a value for each replica of this host."""
        stream, earlier = current_stream(), set[int]()
        firsts = [value.values[0] for value, _ in pairs]
        gradients = [
            _known(variable, first.dtype, isinstance(first, tf.IndexedSlices), earlier)
            for first, (_, variable) in zip(firsts, pairs, strict=True)
        ]
        schedule = make_schedule(self.params, gradients, self.senders, options.bytes_per_pack)
        warn_of_unmatched_patterns(self.params, gradients, self._unmatched)
        keeping = [b.indices for b in schedule.buckets if b.reducer.residual_dtype]
        known = {i for i, gradient in enumerate(gradients) if isinstance(gradient, Gradient)}
        pairs = self.with_restored(pairs, known.difference(*keeping))
        results: dict[int, Any] = {}
        if self.params.specs() and (schedule.buckets or schedule.uncompressed):
            variables = [pairs[i][1] for i in (*schedule.compressed, *schedule.bypass)]
            replicas = [self._replicas_of(bucket, pairs, stream) for bucket in schedule.buckets]
            owner = next(v for v in variables if isinstance(v, tf.Variable))
            notes = self.state.notes(stream, owner)
            recorded = self.measurement.steps_of(schedule, notes, stream, owner)
            step = Step(pairs, schedule, variables, replicas, stream, recorded, options)
            for bucket, sums in zip(schedule.buckets, self._build(step), strict=True):
                for i, components in zip(bucket.indices, zip(*sums, strict=True), strict=True):
                    results[i] = _compat.regroup(components, wrap_class=_compat.Mirrored)
        # The stock ops concatenate what they get, and so take one dtype at a time.
        by_dtype: dict[tf.DType, list[int]] = {}
        for i in schedule.bypass:
            by_dtype.setdefault(firsts[i].dtype, []).append(i)
        for indices in by_dtype.values():
            mine = [pairs[i] for i in indices]
            sums = self._stock.batch_reduce_implementation(_SUM, mine, options)
            results |= zip(indices, sums, strict=True)
        return [results[i] for i in range(len(pairs))]

    def with_restored(self, pairs: Pairs, indices: Iterable[int]) -> list[tuple[Any, Any]]:
        """Adds what was restored to some of the gradients: those that get no residuals."""
        added = list(pairs)
        for i in sorted(indices):
            value, variable = pairs[i]
            if isinstance(variable, _compat.DistributedVariable):
                total = self.state.add_restored(current_stream(), value.values, variable)
                added[i] = (_compat.PerReplica(total), variable)
        return added

    def _replicas_of(self, bucket: Bucket, pairs: Pairs, stream: Stream) -> list[Replica]:
        """Returns what each replica of this host contributes to a bucket."""
        values, variables = zip(*(pairs[i] for i in bucket.indices), strict=True)
        for value, variable in zip(values, variables, strict=True):
            for component in value.values:  # one of a loop, say, may not know its shape
                if isinstance(component, tf.IndexedSlices):
                    component.values.set_shape([None, *variable.shape[1:]])
                else:
                    component.set_shape(variable.shape)
        residuals: list[Any] = []
        dtype = bucket.reducer.residual_dtype
        if dtype is not None:
            residuals = [self.state.residuals_of(each, stream, dtype) for each in variables]
        slots = [bucket.reducer.slot(variable.shape) for variable in variables]
        shared = [
            self.state.value(slot, stream, variable).values
            for slot, variable in zip(slots, variables, strict=True)
            if slot is not None
        ]
        notes = self.state.notes(stream, variables[0])
        return [
            Replica(
                device,
                [value.values[r] for value in values],
                [residual[r] for residual in residuals],
                variables,
                [component[r] for component in shared],
                notes,
            )
            for r, device in enumerate(self.network.devices)
        ]

    def state_of(self, step: Step, slot: Slot) -> Any:
        """Returns the state of the step's stream in a slot, a mirrored variable."""
        mine = [v for v in step.variables if isinstance(v, _compat.DistributedVariable)]
        return self.state.of_first(slot, step.stream, mine)

    def _build(self, step: Step) -> list[Any]:
        """Returns the sums of buckets, in full precision while a warm-up lasts."""
        if not step.schedule.buckets:
            self.built(step, step.schedule, [])
            if not self._has_warned:
                warn_that_nothing_is_compressed(step.schedule, self.params)
                self._has_warned = True
            return []
        if not (tf.executing_eagerly() or tf.inside_function()):
            raise RuntimeError(
                "tf_gc compresses gradients eagerly or in a tf.function, and not in a graph for a "
                "tf.compat.v1.Session: put the step into a tf.function"
            )
        if not step.schedule.warm_up:
            return self.after_warm_up(step)
        state = self.state_of(step, warm_up.SLOT)
        # One branch for all buckets: TensorFlow would run one after the other those that
        # share what is stateful, such as the order of the collectives.
        is_on = warm_up.is_on(state.values[0].read_value())
        return _compat.cond(
            is_on, lambda: self._in_warm_up(step, state), lambda: self.after_warm_up(step)
        )

    def after_warm_up(self, step: Step) -> list[Any]:
        """Returns the sums of buckets in a step to which no warm-up applies."""
        measure = self.record(step, compressed=True)
        reductions = [
            bucket.reducer.reduce(i, step.replicas[i], step.options)
            for i, bucket in enumerate(step.schedule.buckets)
        ]
        self.built(step, step.schedule, reductions)
        self.measurement.measure_if(measure, step.recorded, reductions)
        return [reduction.sums for reduction in reductions]

    def _in_warm_up(self, step: Step, state: Any) -> list[Any]:
        """Returns the sums of buckets; those that warm up are summed in full precision."""
        self.record(step, compressed=False)
        reports = on_devices(state.values, lambda mine: [warm_up.report(mine.read_value())])
        sums, warm = [], []
        for i, bucket in enumerate(step.schedule.buckets):
            replicas = step.replicas[i]
            if bucket.warm_up:
                sums.append(self.in_full_precision(step, i, replicas))
                warm.append(sums[-1])
            else:
                sums.append(bucket.reducer.reduce(i, replicas, step.options).sums)
        reported = self._in_branch(reports, [state], step.options)

        def after(component: Any, report: list[tf.Tensor], mine: Any) -> tf.Tensor:
            return warm_up.after_step(component.read_value(), report[0], itertools.chain(*mine))

        states = once_per_host(state.values, after, reported, zip(*warm, strict=True))
        on_devices(state.values, lambda mine, now: mine.assign(now, read_value=False), states)
        return sums

    def in_full_precision(self, step: Step, i: int, replicas: Sequence[Replica]) -> Any:
        """Returns the sums of bucket `i` in full precision, in a branch."""
        reducer = step.schedule.buckets[i].reducer.in_full_precision
        if reducer is not None:
            return reducer.reduce(i, replicas, step.options).sums
        # Each bucket by itself: the stock ops copy what they sum at once.
        gradients = [replica.gradients for replica in replicas]
        return self._in_branch(gradients, replicas[0].variables, step.options)

    def _in_branch(
        self, values: Sequence[Sequence[Any]], variables: Sequence[Any], options: Any
    ) -> list[list[Any]]:
        """Returns the sums by the stock ops, in a branch, of values of replicas for variables."""
        parts = map(_compat.PerReplica, zip(*values, strict=True))
        pairs = list(zip(parts, variables, strict=True))
        # TensorFlow does not wrap a single replica's.
        sums = self._stock_in_branches.batch_reduce_implementation(_SUM, pairs, options)
        by_variable = [getattr(total, "values", [total]) for total in sums]
        return [list(mine) for mine in zip(*by_variable, strict=True)]

    def record(self, step: Step, compressed: bool) -> tf.Tensor:
        """Records a step; returns whether density and residuals are measured in it."""
        first = step.replicas[0][0].gradients[0]
        return self.measurement.note_step(step.recorded, first, compressed)

    def built(
        self,
        step: Step,
        schedule: Schedule,
        reductions: Sequence[Reduction],
        compressed: bool = True,
    ) -> None:
        """Notes how the step is built."""
        self.state.log_what_was_restored()
        self.measurement.built(step.recorded, schedule, step.pairs, reductions, compressed)


def _known(
    destination: Any, dtype: tf.DType, sparse: bool, earlier: set[int]
) -> Gradient | Uncompressed | None:
    """Returns what `gradient_of` does; `None` for other values than gradients."""
    if isinstance(destination, _compat.DistributedVariable):
        return gradient_of(destination, dtype, sparse, earlier)
    if not isinstance(destination, tf.Variable):
        return None
    return Uncompressed(path_of(destination), "are of variables made outside of strategy.scope()")
