"""The trial of `tf_gc.Auto`: steps in full precision and compressed ones, then the faster for good.

Every step of a trial is a valid training step. Whether it compresses follows from the number of the
step alone, not from what was measured: so a run is the same to the bit as another one that makes
the same choice at the end. The two ways take turns, so that what changes the speed of a machine for
a while slows down both.
"""

import dataclasses

import tensorflow as tf

from tf_gc.state.registry import Slot

# How many turns each way has, and how many steps each turn. The time from the last step of a turn
# to the next step counts for neither.
ROUNDS = 4
TURN = 4
# How many steps the trial takes, and how many times of a step there are for each way.
STEPS = 2 * ROUNDS * TURN
TIMES = ROUNDS * (TURN - 1)

# Instead of a choice, where not both ways have a time.
UNDECIDED = -1

# The elements of the state: its size, and the position of each.
SIZE = 3
_DONE, _CHOSEN, _REPLICAS = range(SIZE)

# The state belongs to the first of the variables whose gradients are reduced together.
SLOT = Slot("trial", SIZE)


@dataclasses.dataclass(frozen=True)
class Trial:
    """The rule of a trial.

    The state is float32 [SIZE], zeros at the start, and the same on all replicas.

    Attributes:
      replicas: how many replicas there are. A state of another number, as a checkpoint may have it,
        counts for nothing: the trial begins anew.
    """

    replicas: int

    def compresses(self, state: tf.Tensor) -> tf.Tensor:
        """Returns whether the next step compresses, a bool scalar."""
        done = self._done(state)
        return tf.where(done < STEPS, tf.equal(done // TURN % 2, 1), state[_CHOSEN] > 0)

    def is_on(self, state: tf.Tensor) -> tf.Tensor:
        """Returns whether the next step is of the trial, or the first one after it: a bool."""
        return self._done(state) <= STEPS

    def is_last(self, state: tf.Tensor) -> tf.Tensor:
        """Returns whether the choice is to be made in the next step, a bool scalar."""
        return tf.equal(self._done(state), STEPS - 1)

    def has_just_ended(self, state: tf.Tensor) -> tf.Tensor:
        """Returns whether the next step is the first one after the trial, a bool scalar."""
        return tf.equal(self._done(state), STEPS)

    def after_step(self, state: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        """Returns the state after a step, float32 [SIZE].

        Args:
          state: float32 [SIZE], the state before.
          chosen: what the trial chooses, as `faster` returns it; it counts in the last step only.
            If it is `UNDECIDED`, the trial begins anew.
        """
        is_last = self.is_last(state)
        kept = tf.where(is_last, tf.cast(chosen, tf.float32), state[_CHOSEN])
        begins_anew = tf.logical_and(is_last, tf.equal(chosen, UNDECIDED))
        done = tf.where(begins_anew, 0, self._done(state) + 1)
        return tf.stack([tf.cast(done, tf.float32), kept, tf.constant(self.replicas, tf.float32)])

    def _done(self, state: tf.Tensor) -> tf.Tensor:
        """Returns how many steps there were, the first one after the trial included."""
        mine = tf.equal(state[_REPLICAS], self.replicas)
        return tf.where(mine, tf.cast(state[_DONE], tf.int32), 0)


def faster(times: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the way in which a step takes less time, and what counts as the time of each.

    Args:
      times: int64 [workers, 2], each worker's median times of steps in full precision and of
        compressed ones, the largest int64 where it has none; a synchronous step takes as long as
        the slowest worker needs.

    Returns:
      Whether to compress, an int64 scalar of 0 or 1, and int64 [2], the longest time of any worker.
      The choice is `UNDECIDED` if a way has no time: a checkpoint has the steps of a trial, but not
      the times that another process measured.
    """
    slowest = tf.reduce_max(times, axis=0)
    both_measured = tf.reduce_all(slowest < tf.int64.max)
    return tf.where(both_measured, tf.argmin(slowest), tf.constant(UNDECIDED, tf.int64)), slowest
