"""The trial: some steps with each way to sum gradients, and then the fastest one for good.

Every step of a trial is a valid training step. Which candidate a step takes follows from the number
of the step alone, not from what was measured: so a run is the same to the bit as another one that
makes the same choice at the end. The candidates take turns in rounds, so that what changes the
speed of a machine for a while slows down all of them.
"""

import dataclasses
import zlib
from collections.abc import Sequence

import tensorflow as tf

from tf_gc.state.seat import Slot

# Each candidate has so many turns, of so many steps each. The time from the last step of a turn
# to the next step counts for nobody.
ROUNDS = 4
TURN = 4
# How many times of a step there are for each candidate.
TIMES = ROUNDS * (TURN - 1)

# Instead of the number of a candidate, where not all of them have a time.
UNDECIDED = -1

# The elements of the state: its size, and the position of each.
SIZE = 3
_STEPS, _CHOSEN, _MARK = range(SIZE)

# The state belongs to the first of the variables whose gradients are reduced together.
SLOT = Slot("trial", SIZE)


@dataclasses.dataclass(frozen=True)
class Trial:
    """The rule of a trial.

    The state is float32 [SIZE], zeros at the start, and the same on all replicas.

    Attributes:
      candidates: the names of the candidates.
      replicas: how many replicas there are. A state of other candidates, or of another number of
        replicas, as a checkpoint may have it, counts for nothing: the trial begins anew.
    """

    candidates: Sequence[str]
    replicas: int

    @property
    def steps(self) -> int:
        """How many steps the trial takes."""
        return ROUNDS * TURN * len(self.candidates)

    def current(self, state: tf.Tensor) -> tf.Tensor:
        """Returns the number of the candidate of the next step, an int32 scalar."""
        done = self._done(state)
        turn = done // TURN % len(self.candidates)
        return tf.where(done < self.steps, turn, tf.cast(state[_CHOSEN], tf.int32))

    def is_on(self, state: tf.Tensor) -> tf.Tensor:
        """Returns whether the next step is of the trial, or the first one after it: a bool."""
        return self._done(state) <= self.steps

    def is_last(self, state: tf.Tensor) -> tf.Tensor:
        """Returns whether the choice is to be made in the next step, a bool scalar."""
        return tf.equal(self._done(state), self.steps - 1)

    def has_just_ended(self, state: tf.Tensor) -> tf.Tensor:
        """Returns whether the next step is the first one after the trial, a bool scalar."""
        return tf.equal(self._done(state), self.steps)

    def after_step(self, state: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        """Returns the state after a step, float32 [SIZE].

        Args:
          state: float32 [SIZE], the state before.
          chosen: the number of the candidate that the trial chooses, an int64 scalar; it counts in
            the last step only. If it is `UNDECIDED`, the trial begins anew.
        """
        is_last = self.is_last(state)
        kept = tf.where(is_last, tf.cast(chosen, tf.float32), state[_CHOSEN])
        begins_anew = tf.logical_and(is_last, tf.equal(chosen, UNDECIDED))
        done = tf.where(begins_anew, 0, self._done(state) + 1)
        mark = tf.constant(self._mark, tf.float32)
        return tf.stack([tf.cast(done, tf.float32), kept, mark])

    def _done(self, state: tf.Tensor) -> tf.Tensor:
        """Returns how many steps there were, the first one after the trial included."""
        mine = tf.equal(state[_MARK], self._mark)
        return tf.where(mine, tf.cast(state[_STEPS], tf.int32), 0)

    @property
    def _mark(self) -> float:
        """A number, exact in float32, that tells the candidates from others; not zero."""
        described = repr((tuple(self.candidates), self.replicas, ROUNDS, TURN))
        return float(zlib.crc32(described.encode()) % (1 << 23) + 1)


def fastest(times: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the candidate with which a step takes least time, and what counts as its time.

    Args:
      times: int64 [workers, candidates], each worker's median times, the largest int64 where it
        has none; a synchronous step takes as long as the slowest worker needs.

    Returns:
      The number of the candidate, an int64 scalar, and int64 [candidates], the longest time of any
      worker. The number is `UNDECIDED` if a candidate has no time: a checkpoint has the steps of a
      trial, but not the times that another process measured.
    """
    slowest = tf.reduce_max(times, axis=0)
    all_measured = tf.reduce_all(slowest < tf.int64.max)
    return tf.where(all_measured, tf.argmin(slowest), tf.constant(UNDECIDED, tf.int64)), slowest
