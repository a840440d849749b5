"""The steps of `tf_gc.Auto`: a trial of all candidates, and then those of the one it chooses."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc import _compat
from tf_gc.candidates import Candidate, candidates
from tf_gc.network.group import Network
from tf_gc.params import Auto
from tf_gc.schedule import Schedule
from tf_gc.state import residuals
from tf_gc.steps import trial
from tf_gc.steps.gradient_sums import Batch, GradientSums, Sums

# The number of the candidate that compresses nothing.
_FULL_PRECISION = 0


class TrialSteps:
    """Builds steps that sum gradients in the way of the current candidate.

    Attributes:
      candidates: the ways to sum gradients, full precision first.
    """

    def __init__(self, auto: Auto, network: Network, sums: GradientSums) -> None:
        """Initializes the object. On several hosts this is a collective.

        Args:
          auto: what the user asks for.
          network: the replicas.
          sums: builds the sums.

        Raises:
          ValueError: if `auto` chooses something that is no candidate, or its params ask for a plan
            or a wire that is of no use for these replicas.
        """
        self.candidates: tuple[Candidate, ...] = candidates(auto, network)
        names = [candidate.name for candidate in self.candidates]
        self._choice = None if auto.choice is None else names.index(auto.choice)
        self._sums = sums
        self._trial = trial.Trial(names, sums.replicas)
        self._group = sums.network.group(sums.network.devices)
        sums.measurement.candidates = self.candidates

    def build(self, schedules: Sequence[Schedule], batch: Batch) -> Sums:
        """Returns the sums of what the last schedule compresses, in the order of its buckets.

        Args:
          schedules: that of each candidate.
          batch: the gradients.

        Raises:
          ValueError: in a graph for a Session.
        """
        if not (tf.executing_eagerly() or _compat.builds_function()):
            raise ValueError(
                "tf_gc.Auto cannot try anything in a graph for a tf.compat.v1.Session: put the "
                "step into a tf.function, or give the params of a candidate, such as "
                f"{self.candidates[-1].params!r}"
            )
        order = schedules[-1].compressed
        number = self._sums.measurement.number_of(schedules[-1], batch.pairs, batch.state.stream)
        state = batch.state.of_first(trial.SLOT, batch.variables(first=order))
        now = state.values[0].read_value()

        def take_turn() -> None:
            # What counts the step, below, writes the state, and so waits for branches that read it.
            # Otherwise the choice might be made before the last step of the trial notes itself.
            state.values[0].read_value()

        def compressed(candidate: int) -> Sums:
            take_turn()
            schedule = schedules[candidate]
            sums = self._sums.compressed(schedule, batch, number, candidate)
            of_index = dict(zip(schedule.compressed, sums, strict=True))
            return [of_index[index] for index in order]

        def in_full_precision() -> Sums:
            take_turn()
            return self._in_full_precision(number, now, schedules, batch)

        ways = [functools.partial(compressed, i) for i in range(1, len(schedules))]
        sums = _compat.switch_case(self._trial.current(now), [in_full_precision, *ways])
        tf.cond(
            self._trial.is_on(now),
            lambda: self._after_step(number, state, now, batch.options),
            lambda: tf.constant(True),
        )
        return sums

    def _in_full_precision(
        self,
        number: int,
        now: tf.Tensor,
        schedules: Sequence[Schedule],
        batch: Batch,
    ) -> Sums:
        measurement, pairs = self._sums.measurement, batch.pairs
        schedule, in_buckets = schedules[_FULL_PRECISION], schedules[-1]
        variables = [pairs[i][1] for i in in_buckets.compressed]
        mine = [pairs[i][0].values for i in in_buckets.compressed]
        keeps = [i in in_buckets.with_residuals for i in in_buckets.compressed]
        measurement.note_step(number, mine[0][0], compressed=False, candidate=_FULL_PRECISION)
        # Otherwise what the trial left in the residuals would never be sent.
        mine = tf.cond(
            self._trial.has_just_ended(now),
            lambda: [
                list(residuals.emptied_into(m, batch.state.residuals_of(v), all_rows=True))
                if kept
                else list(m)
                for m, v, kept in zip(mine, variables, keeps, strict=True)
            ],
            lambda: [[tf.identity(gradient) for gradient in gradients] for gradients in mine],
        )
        whole = dict(enumerate(pairs))
        for index, gradients, variable in zip(in_buckets.compressed, mine, variables, strict=True):
            whole[index] = (_compat.PerReplica(self._placed(gradients)), variable)
        whole_batch = dataclasses.replace(batch, pairs=list(whole.values()))
        sums = [
            components
            for i, bucket in enumerate(in_buckets.buckets)
            for components in self._sums.in_full_precision(i, bucket, whole_batch)
        ]
        traffic = self._sums.note(schedule, pairs, [], logs=False)
        measurement.built(number, _FULL_PRECISION, schedule, traffic, [])
        return sums

    def _placed(self, gradients: Sequence[Any]) -> list[Any]:
        """Returns the gradients of the local replicas, on their devices.

        A result of `tf.cond` has none, and the stock ops would sum such gradients one by one.
        """
        placed = []
        for device, gradient in zip(self._sums.network.devices, gradients, strict=True):
            with tf.device(device):
                placed.append(tf.identity(gradient))
        return placed

    def _after_step(self, number: int, state: Any, now: tf.Tensor, options: Any) -> tf.Tensor:
        """Counts a step of the trial, and chooses at the end; returns when that has been done."""
        chosen = tf.cond(
            self._trial.is_last(now),
            lambda: self._choose(number, options),
            lambda: tf.zeros([], tf.int64),
        )
        assigned = []
        for component in state.values:
            with tf.device(component.device):
                after = self._trial.after_step(now, chosen)
                assigned.append(component.assign(after, read_value=False))
        with tf.control_dependencies(assigned):
            return tf.constant(True)

    def _choose(self, number: int, options: Any) -> tf.Tensor:
        """Returns the number of the candidate that all workers choose, an int64 scalar."""
        recorder = self._sums.measurement.recorder
        times = recorder.trial_times(number, len(self.candidates), trial.TIMES)
        messages = []
        for device in self._sums.network.devices:
            with tf.device(device):
                messages.append(tf.identity(times)[None])
        received = self._group.open(0, options).all_gather(messages)[0]
        with tf.device("CPU:0"):
            chosen, slowest = trial.fastest(tf.concat(received, axis=0))
            if self._choice is not None:
                chosen = tf.constant(self._choice, tf.int64)
            kept = recorder.keep_trial(number, slowest, chosen)
            with tf.control_dependencies([kept]):
                return tf.identity(chosen)
