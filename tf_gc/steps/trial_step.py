"""A step of `tf_gc.Auto`: a trial of full precision and compression, and then the faster one."""

import dataclasses
from typing import Any

import tensorflow as tf

from tf_gc import _compat
from tf_gc.network.group import Group, on_devices
from tf_gc.params import Auto
from tf_gc.params.composed import WAYS
from tf_gc.schedule import Schedule
from tf_gc.state import residuals
from tf_gc.steps import trial
from tf_gc.steps.gradient_sums import Sums
from tf_gc.steps.step import Step


@dataclasses.dataclass(eq=False)
class TrialStep(Step):
    """Builds sums in full precision or compressed, as the trial among a group says."""

    auto: Auto
    group: Group

    def after_warm_up(self) -> Sums:
        """Returns the sums of a step to which no warm-up applies."""
        state = self.state(trial.SLOT)
        now = state.values[0].read_value()
        done = trial.steps_done(now, self.sums.replicas)

        def take_turn() -> None:
            # The op that counts the step, below, writes the state, and so waits for branches that
            # read it. Otherwise the choice might be made before the last step notes itself.
            state.values[0].read_value()

        def compressed() -> Sums:
            take_turn()
            return self.compressed()

        def in_full_precision() -> Sums:
            take_turn()
            return self._in_full_precision(done)

        sums = _compat.cond(trial.compresses(now, done), compressed, in_full_precision)
        is_on = done <= trial.STEPS  # or the first step after it
        tf.cond(is_on, lambda: self._after_step(state, now, done), lambda: tf.constant(True))
        return sums

    def _in_full_precision(self, done: tf.Tensor) -> Sums:
        self.begin(compressed=False)
        # Otherwise what the trial left in the residuals would never be sent.
        gradients = tf.cond(
            tf.equal(done, trial.STEPS),
            lambda: [
                [
                    list(residuals.emptied_into(r.gradients, r.residuals, all_rows=True))
                    if r.residuals
                    else r.gradients
                    for r in of_bucket
                ]
                for of_bucket in self.replicas
            ],
            lambda: [[[*map(tf.identity, r.gradients)] for r in mine] for mine in self.replicas],
        )
        sums = Sums()
        for i, bucket in enumerate(self.schedule.buckets):
            # A result of `tf.cond` is on no device, and the stock ops would sum such gradients one
            # by one.
            replicas = on_devices(
                self.replicas[i],
                lambda r, mine: dataclasses.replace(r, gradients=[*map(tf.identity, mine)]),
                gradients[i],
            )
            sums += self.sums.in_full_precision(i, bucket, replicas, self.options)
        nothing_compressed = Schedule((), tuple(range(len(self.pairs))), ())
        traffic = self.note(nothing_compressed, compressed=False)
        self.measurement.built(self.model, nothing_compressed, traffic, [], compressed=False)
        return sums

    def _after_step(self, state: Any, now: tf.Tensor, done: tf.Tensor) -> tf.Tensor:
        """Counts a step of the trial, and chooses at the end; returns when that has been done."""
        is_last = tf.equal(done, trial.STEPS - 1)
        chosen = tf.cond(is_last, self._choose, lambda: tf.zeros([], tf.int64))

        def assign(component: Any) -> Any:
            after = trial.after_step(now, done, chosen, self.sums.replicas)
            return component.assign(after, read_value=False)

        with tf.control_dependencies(on_devices(state.values, assign)):
            return tf.constant(True)

    def _choose(self) -> tf.Tensor:
        """Returns the position in `WAYS` of the way that all workers choose, an int64 scalar."""
        recorder, number = self.measurement.recorder, self.model.number
        times = recorder.trial_times(number, trial.TIMES)
        messages = []
        for device in self.sums.network.devices:
            with tf.device(device):
                messages.append(tf.identity(times)[None])
        received = self.group.open(0, self.options).all_gather(messages)[0]
        with tf.device("CPU:0"):
            chosen, slowest = trial.faster(tf.concat(received, axis=0))
            if self.auto.choice is not None:
                chosen = tf.constant(WAYS.index(self.auto.choice), tf.int64)
            result = tf.cast(tf.concat([[chosen], slowest], axis=0), tf.float64)
            kept = recorder.keep(number, result, of_trial=True)
            with tf.control_dependencies([kept]):
                return tf.identity(chosen)
