"""The trial of `tf_gc.Auto`: steps in full precision and compressed ones, then the faster for good.

Whether a step compresses follows from its number alone, not from what was measured: so a run is the
same to the bit as another one that makes the same choice at the end. The two ways take turns, so
that what changes the speed of a machine for a while slows down both.
"""

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
