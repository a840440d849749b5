"""The steps of a strategy: sums of gradients, and what the steps measure of themselves."""

from collections.abc import Sequence

import tensorflow as tf

from tf_gc import _compat
from tf_gc.network.traffic import Traffic
from tf_gc.observe.accounting import Accounting
from tf_gc.observe.measurement import Measurement, Model
from tf_gc.reducers.reducer import Reduction
from tf_gc.schedule import Schedule
from tf_gc.steps import warm_up
from tf_gc.steps.gradient_sums import Batch, GradientSums, Sums, by_gradient


class MeasuredSteps:
    """Builds steps, which return the sums of what a schedule compresses, bucket by bucket.

    Attributes:
      sums: builds the sums.
      measurement: notes what is built, and records the steps.
    """

    def __init__(
        self, sums: GradientSums, accounting: Accounting, measurement: Measurement
    ) -> None:
        self.sums = sums
        self.measurement = measurement
        self._accounting = accounting

    def model_of(self, schedule: Schedule, batch: Batch) -> Model:
        """Returns what is measured of the steps of a schedule."""
        variable = batch.pairs[schedule.compressed[0]][1]
        notes = self.sums.compression_state.notes(batch.stream, variable)
        return self.measurement.model_of(schedule, notes, batch.stream, variable)

    def begin(self, schedule: Schedule, batch: Batch, compressed: bool) -> tf.Tensor:
        """Records a step; returns whether density and residuals are measured in it."""
        first = batch.pairs[schedule.compressed[0]][0].values[0]
        return self.measurement.note_step(self.model_of(schedule, batch), first, compressed)

    def note(
        self,
        schedule: Schedule,
        batch: Batch,
        reductions: Sequence[Reduction] = (),
        compressed: bool = True,
    ) -> Traffic:
        """Notes what is being built, and returns what it sends as far as that is known."""
        self.sums.compression_state.log_what_was_restored()
        replicas = self.sums.replicas
        return self._accounting.note(schedule, batch.pairs, reductions, replicas, compressed)

    def compressed(self, schedule: Schedule, batch: Batch) -> Sums:
        """Returns the sums of a compressed step."""
        model = self.model_of(schedule, batch)
        measure = self.begin(schedule, batch, compressed=True)
        reductions = [
            self.sums.compressed(i, bucket, batch) for i, bucket in enumerate(schedule.buckets)
        ]
        traffic = self.note(schedule, batch, reductions)
        self.measurement.built(model, schedule, traffic, reductions)
        self.measurement.measure_if(measure, model, reductions)
        return [components for reduction in reductions for components in by_gradient(reduction)]

    def after_warm_up(self, schedule: Schedule, batch: Batch) -> Sums:
        """Returns the sums of a step to which no warm-up applies."""
        return self.compressed(schedule, batch)

    def build(self, schedule: Schedule, batch: Batch) -> Sums:
        """Returns the sums of a step, which is in full precision while a warm-up lasts.

        Raises:
          RuntimeError: in a graph for a `tf.compat.v1.Session`.
        """
        if not (tf.executing_eagerly() or tf.inside_function()):
            raise RuntimeError(
                "tf_gc compresses gradients eagerly or in a tf.function, and not in a graph for a "
                "tf.compat.v1.Session: put the step into a tf.function"
            )
        if not schedule.warm_up:
            return self.after_warm_up(schedule, batch)
        warm = [i for bucket in schedule.buckets if bucket.warm_up for i in bucket.indices]
        variables = batch.variables(first=warm)
        state = self.sums.compression_state.of_first(warm_up.SLOT, batch.stream, variables)

        def in_warm_up() -> Sums:
            self.begin(schedule, batch, compressed=False)
            return self.sums.in_warm_up(state, schedule, batch)

        # One branch for all buckets: TensorFlow would run one after the other those that
        # share what is stateful, such as the order of the collectives.
        is_on = warm_up.is_on(state.values[0].read_value())
        return _compat.cond(is_on, in_warm_up, lambda: self.after_warm_up(schedule, batch))
