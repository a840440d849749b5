"""The steps of `tf_gc.Auto`: a trial of full precision and compression, and then the faster one."""

import dataclasses
from typing import Any

import tensorflow as tf

from tf_gc import _compat
from tf_gc.observe.accounting import Accounting
from tf_gc.observe.measurement import Measurement, Model
from tf_gc.params import Auto
from tf_gc.params.composed import WAYS
from tf_gc.schedule import Schedule
from tf_gc.state import residuals
from tf_gc.steps import trial
from tf_gc.steps.gradient_sums import Batch, GradientSums, Sums
from tf_gc.steps.measured_steps import MeasuredSteps


class TrialSteps(MeasuredSteps):
    """Builds steps that sum gradients in full precision or compressed, as the trial says."""

    def __init__(
        self, auto: Auto, sums: GradientSums, accounting: Accounting, measurement: Measurement
    ) -> None:
        """Initializes the object. On several hosts this is a collective."""
        super().__init__(sums, accounting, measurement)
        self._auto = auto
        self._network = sums.network
        self._trial = trial.Trial(sums.replicas)
        self._group = sums.network.group(sums.network.devices)

    def after_warm_up(self, schedule: Schedule, batch: Batch) -> Sums:
        """Returns the sums of what the schedule compresses, in the order of its buckets.

        Args:
          schedule: how compressed steps send what.
          batch: the gradients.
        """
        model = self.model_of(schedule, batch)
        variables = batch.variables(first=schedule.compressed)
        state = self.sums.compression_state.of_first(trial.SLOT, batch.stream, variables)
        now = state.values[0].read_value()

        def take_turn() -> None:
            # The op that counts the step, below, writes the state, and so waits for branches that
            # read it. Otherwise the choice might be made before the last step notes itself.
            state.values[0].read_value()

        def compressed() -> Sums:
            take_turn()
            return self.compressed(schedule, batch)

        def in_full_precision() -> Sums:
            take_turn()
            return self._in_full_precision(model, now, schedule, batch)

        sums = _compat.cond(self._trial.compresses(now), compressed, in_full_precision)
        tf.cond(
            self._trial.is_on(now),
            lambda: self._after_step(model, state, now, batch.options),
            lambda: tf.constant(True),
        )
        return sums

    def _in_full_precision(
        self, model: Model, now: tf.Tensor, schedule: Schedule, batch: Batch
    ) -> Sums:
        state, order = self.sums.compression_state, schedule.compressed
        variables = [batch.pairs[i][1] for i in order]
        mine = [batch.pairs[i][0].values for i in order]
        keeps = [i in schedule.with_residuals for i in order]
        self.begin(schedule, batch, compressed=False)
        # Otherwise what the trial left in the residuals would never be sent.
        mine = tf.cond(
            self._trial.has_just_ended(now),
            lambda: [
                list(residuals.emptied_into(m, state.residuals_of(v, batch.stream), all_rows=True))
                if kept
                else list(m)
                for m, v, kept in zip(mine, variables, keeps, strict=True)
            ],
            lambda: [[tf.identity(gradient) for gradient in gradients] for gradients in mine],
        )
        whole = list(batch.pairs)
        for index, gradients, variable in zip(order, mine, variables, strict=True):
            # A result of `tf.cond` is on no device, and the stock ops would sum such gradients one
            # by one.
            placed = []
            for device, gradient in zip(self._network.devices, gradients, strict=True):
                with tf.device(device):
                    placed.append(tf.identity(gradient))
            whole[index] = (_compat.PerReplica(placed), variable)
        whole_batch = dataclasses.replace(batch, pairs=whole)
        sums = [
            components
            for i, bucket in enumerate(schedule.buckets)
            for components in self.sums.in_full_precision(i, bucket, whole_batch)
        ]
        nothing_compressed = Schedule((), tuple(range(len(whole))), ())
        traffic = self.note(nothing_compressed, batch, compressed=False)
        self.measurement.built(model, nothing_compressed, traffic, [], compressed=False)
        return sums

    def _after_step(self, model: Model, state: Any, now: tf.Tensor, options: Any) -> tf.Tensor:
        """Counts a step of the trial, and chooses at the end; returns when that has been done."""
        chosen = tf.cond(
            self._trial.is_last(now),
            lambda: self._choose(model, options),
            lambda: tf.zeros([], tf.int64),
        )
        assigned = []
        for component in state.values:
            with tf.device(component.device):
                after = self._trial.after_step(now, chosen)
                assigned.append(component.assign(after, read_value=False))
        with tf.control_dependencies(assigned):
            return tf.constant(True)

    def _choose(self, model: Model, options: Any) -> tf.Tensor:
        """Returns the position in `WAYS` of the way that all workers choose, an int64 scalar."""
        recorder = self.measurement.recorder
        times = recorder.trial_times(model.number, trial.TIMES)
        messages = []
        for device in self._network.devices:
            with tf.device(device):
                messages.append(tf.identity(times)[None])
        received = self._group.open(0, options).all_gather(messages)[0]
        with tf.device("CPU:0"):
            chosen, slowest = trial.faster(tf.concat(received, axis=0))
            if self._auto.choice is not None:
                chosen = tf.constant(WAYS.index(self._auto.choice), tf.int64)
            result = tf.cast(tf.concat([[chosen], slowest], axis=0), tf.float64)
            kept = recorder.keep(model.number, result, of_trial=True)
            with tf.control_dependencies([kept]):
                return tf.identity(chosen)
