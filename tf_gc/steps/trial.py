"""The trial of `tf_gc.Auto`: steps in full precision and compressed ones, then the faster for good.

Whether a step compresses follows from its number alone, not from what was measured: so a run is the
same to the bit as another one that makes the same choice at the end. The two ways take turns, so
that what changes the speed of a machine for a while slows down both.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from tf_gc import _compat
from tf_gc.network.group import on_devices
from tf_gc.params import Auto
from tf_gc.params.composed import WAYS
from tf_gc.schedule import Schedule
from tf_gc.state import residuals
from tf_gc.state.registry import Slot
from tf_gc.steps.gradient_sums import GradientSums, Step

# How many turns each way has, and how many steps each turn. The time from the last step of a turn
# to the next step counts for neither.
ROUNDS = 4
TURN = 4
# How many steps the trial takes, and how many times of a step there are for each way.
STEPS = 2 * ROUNDS * TURN
TIMES = ROUNDS * (TURN - 1)

# Instead of a choice, where not both ways have a time.
UNDECIDED = -1

# The elements of the state, zeros at first and alike on all replicas: its size, and where each is.
SIZE = 3
_DONE, _CHOSEN, _REPLICAS = range(SIZE)

# The state belongs to the first of the variables whose gradients are reduced together.
SLOT = Slot("trial", SIZE)


def steps_done(state: tf.Tensor, replicas: int) -> tf.Tensor:
    """Returns how many steps there were, the first one after the trial included."""
    # A state of another number of replicas, as a checkpoint may have it, counts for nothing.
    mine = tf.equal(state[_REPLICAS], replicas)
    return tf.where(mine, tf.cast(state[_DONE], tf.int32), 0)


def compresses(state: tf.Tensor, done: tf.Tensor) -> tf.Tensor:
    """Returns whether the next step compresses, a bool scalar."""
    return tf.where(done < STEPS, tf.equal(done // TURN % 2, 1), state[_CHOSEN] > 0)


def after_step(state: tf.Tensor, done: tf.Tensor, chosen: tf.Tensor, replicas: int) -> tf.Tensor:
    """Returns the state after a step, float32 [SIZE].

    `chosen` is as `faster` returns it, and counts in the last step only: if it is `UNDECIDED`, the
    trial begins anew.
    """
    is_last = tf.equal(done, STEPS - 1)
    kept = tf.where(is_last, tf.cast(chosen, tf.float32), state[_CHOSEN])
    begins_anew = tf.logical_and(is_last, tf.equal(chosen, UNDECIDED))
    done = tf.where(begins_anew, 0, done + 1)
    return tf.stack([tf.cast(done, tf.float32), kept, tf.constant(replicas, tf.float32)])


def faster(times: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns whether to compress, an int64 scalar, and the longest time of each way, int64 [2].

    `times` are int64 [workers, 2], each worker's medians in full precision and compressed, the
    largest int64 where it has none. A synchronous step takes as long as the slowest worker needs.
    The choice is `UNDECIDED` if a way has no time: a checkpoint has the steps of a trial, but not
    the times that another process measured.
    """
    slowest = tf.reduce_max(times, axis=0)
    both_measured = tf.reduce_all(slowest < tf.int64.max)
    return tf.where(both_measured, tf.argmin(slowest), tf.constant(UNDECIDED, tf.int64)), slowest


@dataclasses.dataclass(eq=False)
class TrialSums(GradientSums):
    """Sums gradients in full precision or compressed, as the trial among all replicas says."""

    params: Auto

    def __post_init__(self) -> None:
        super().__post_init__()
        self._group = self.network.group(self.network.devices)

    def after_warm_up(self, step: Step) -> list[Any]:
        state = self.state_of(step, SLOT)
        now = state.values[0].read_value()
        done = steps_done(now, self.replicas)

        # The op that counts the step, below, writes the state, and so waits for branches that read
        # it. Otherwise the choice might be made before the last step notes itself.
        def compressed() -> list[Any]:
            state.values[0].read_value()
            return super(TrialSums, self).after_warm_up(step)

        def in_full_precision() -> list[Any]:
            state.values[0].read_value()
            return self._in_full_precision(step, done)

        sums: list[Any] = _compat.cond(compresses(now, done), compressed, in_full_precision)
        is_on = done <= STEPS  # or the first step after it
        tf.cond(is_on, lambda: self._after(step, state, now, done), lambda: tf.constant(True))
        return sums

    def _in_full_precision(self, step: Step, done: tf.Tensor) -> list[Any]:
        self.record(step, compressed=False)
        # Otherwise what the trial left in the residuals would never be sent.
        gradients = tf.cond(
            tf.equal(done, STEPS),
            lambda: [
                [[*residuals.emptied_into(r.gradients, r.residuals, all_rows=True)] for r in mine]
                for mine in step.replicas
            ],
            lambda: [[[*map(tf.identity, r.gradients)] for r in mine] for mine in step.replicas],
        )
        sums = []
        for i, bucket in enumerate(step.replicas):
            # A result of `tf.cond` is on no device, and the stock ops would sum such gradients one
            # by one.
            replicas = on_devices(
                bucket,
                lambda r, mine: dataclasses.replace(r, gradients=[*map(tf.identity, mine)]),
                gradients[i],
            )
            sums.append(self.in_full_precision(step, i, replicas))
        nothing_compressed = Schedule((), tuple(range(len(step.pairs))), ())
        self.built(step, nothing_compressed, [], compressed=False)
        return sums

    def _after(self, step: Step, state: Any, now: tf.Tensor, done: tf.Tensor) -> tf.Tensor:
        """Counts a step of the trial, and chooses at the end; returns when that has been done."""
        is_last = tf.equal(done, STEPS - 1)
        chosen = tf.cond(is_last, lambda: self._choose(step), lambda: tf.zeros([], tf.int64))

        def assign(component: Any) -> Any:
            after = after_step(now, done, chosen, self.replicas)
            return component.assign(after, read_value=False)

        with tf.control_dependencies(on_devices(state.values, assign)):
            return tf.constant(True)

    def _choose(self, step: Step) -> tf.Tensor:
        """Returns the position in `WAYS` of the way that all workers choose, an int64 scalar."""
        recorder, number = self.measurement.recorder, step.recorded.number
        times = recorder.trial_times(number, TIMES)
        messages = on_devices(step.replicas[0], lambda _: tf.identity(times)[None])
        received = self._group.open(0, step.options).all_gather(messages)[0]
        with tf.device("CPU:0"):
            chosen, slowest = faster(tf.concat(received, axis=0))
            if self.params.choice is not None:
                chosen = tf.constant(WAYS.index(self.params.choice), tf.int64)
            result = tf.cast(tf.concat([[chosen], slowest], axis=0), tf.float64)
            kept = recorder.keep(number, result, of_trial=True)
            with tf.control_dependencies([kept]):
                return tf.identity(chosen)
