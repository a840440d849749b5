"""A step: the sums of its gradients, in a warm-up or compressed, and what it measures of itself."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc import _compat
from tf_gc.network.group import Replica, on_devices, once_per_host
from tf_gc.observe.accounting import Pairs
from tf_gc.observe.measurement import Measurement, StreamSteps
from tf_gc.reducers.reducer import Reduction
from tf_gc.schedule import Schedule
from tf_gc.state.registry import Slot
from tf_gc.state.stream import Stream
from tf_gc.steps import warm_up
from tf_gc.steps.gradient_sums import GradientSums, Sums, by_gradient


@dataclasses.dataclass(eq=False)
class Step:
    """Builds the sums of what a schedule compresses of one stream, bucket by bucket."""

    sums: GradientSums
    measurement: Measurement
    schedule: Schedule
    pairs: Pairs  # each gradient, a value for each local replica, with its variable
    stream: Stream
    options: Any  # a `tf.distribute.experimental.CommunicationOptions`

    @functools.cached_property
    def replicas(self) -> list[list[Replica]]:
        """For each bucket, what each replica of this host contributes."""
        buckets = self.schedule.buckets
        return [self.sums.replicas_of(bucket, self.pairs, self.stream) for bucket in buckets]

    @functools.cached_property
    def steps(self) -> StreamSteps:
        """What is measured of steps like this one."""
        first = next(v for v in self._variables() if isinstance(v, tf.Variable))
        notes = self.sums.compression_state.notes(self.stream, first)
        return self.measurement.steps_of(self.schedule, notes, self.stream, first)

    def begin(self, compressed: bool) -> tf.Tensor:
        """Records a step; returns whether density and residuals are measured in it."""
        return self.measurement.note_step(self.steps, self.replicas[0][0].gradients[0], compressed)

    def note(
        self, schedule: Schedule, reductions: Sequence[Reduction] = (), compressed: bool = True
    ) -> None:
        """Notes what is being built."""
        self.sums.compression_state.log_what_was_restored()
        self.measurement.built(self.steps, schedule, self.pairs, reductions, compressed)

    def _variables(self) -> list[Any]:
        """Returns the variables, those whose gradients are compressed first."""
        order = dict.fromkeys([*self.schedule.compressed, *range(len(self.pairs))])
        return [self.pairs[i][1] for i in order]

    def state(self, slot: Slot) -> Any:
        """Returns the state of the stream in a slot, a mirrored variable."""
        mine = [v for v in self._variables() if isinstance(v, _compat.DistributedVariable)]
        return self.sums.compression_state.of_first(slot, self.stream, mine)

    def build(self) -> Sums:
        """Returns the sums of a step, which is in full precision while a warm-up lasts."""
        if not (tf.executing_eagerly() or tf.inside_function()):
            raise RuntimeError(
                "tf_gc compresses gradients eagerly or in a tf.function, and not in a graph for a "
                "tf.compat.v1.Session: put the step into a tf.function"
            )
        if not self.schedule.warm_up:
            return self.after_warm_up()
        state = self.state(warm_up.SLOT)
        # One branch for all buckets: TensorFlow would run one after the other those that
        # share what is stateful, such as the order of the collectives.
        is_on = warm_up.is_on(state.values[0].read_value())
        return _compat.cond(is_on, lambda: self._in_warm_up(state), self.after_warm_up)

    def after_warm_up(self) -> Sums:
        """Returns the sums of a step to which no warm-up applies."""
        return self.compressed()

    def compressed(self) -> Sums:
        """Returns the sums of a compressed step."""
        measure = self.begin(compressed=True)
        reductions = [
            bucket.reducer.reduce(i, self.replicas[i], self.options)
            for i, bucket in enumerate(self.schedule.buckets)
        ]
        self.note(self.schedule, reductions)
        self.measurement.measure_if(measure, self.steps, reductions)
        return [components for reduction in reductions for components in by_gradient(reduction)]

    def _in_warm_up(self, state: Any) -> Sums:
        """Returns the sums of a step in which the buckets that warm up are in full precision."""
        self.begin(compressed=False)
        reports = on_devices(state.values, lambda mine: warm_up.report(mine.read_value()))
        sums, warm = Sums(), Sums()
        for i, bucket in enumerate(self.schedule.buckets):
            mine = self.replicas[i]
            if bucket.warm_up:
                warm += (exact := self.sums.in_full_precision(i, bucket, mine, self.options))
                sums += exact
            else:
                sums += by_gradient(bucket.reducer.reduce(i, mine, self.options))
        (reported,) = self.sums.in_branch([reports], [state], self.options)

        def after(component: Any, report: tf.Tensor, mine: Any) -> tf.Tensor:
            return warm_up.after_step(component.read_value(), report, mine)

        states = once_per_host(state.values, after, reported, zip(*warm, strict=True))
        on_devices(state.values, lambda mine, now: mine.assign(now, read_value=False), states)
        return sums
