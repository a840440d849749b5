"""Warm-up: the first steps in full precision, ended by a rule.

The first gradients are the largest, and if compression adds noise to them, an optimizer such as
Adam, which divides by the size of past gradients, remembers it for a long time. Deep Gradient
Compression (Lin et al. 2018) and 1-bit Adam (Tang et al. 2021) therefore begin with full precision.
Here that lasts until the squared norm of the summed gradients, averaged over the latest `PATIENCE`
steps, has not grown for `PATIENCE` steps. The average is the sum of Adam's averages of squared
gradients, and 1-bit Adam, too, waits until those are stable.
"""

from typing import Any

import tensorflow as tf

from tf_gc.state.registry import Slot

# How many steps the average looks back, and how many steps without growth end the warm-up.
PATIENCE = 10
# The average grows if it is larger than this factor times the maximum so far.
_GROWTH = 1.01

# The elements of the state: its size, and the position of each.
SIZE = 6
_AVERAGE, _WEIGHT, _MAXIMUM, _SINCE, _STEPS, _NORM = range(SIZE)

# The state belongs to the first of the variables whose gradients are reduced together.
SLOT = Slot("warm_up", SIZE)


def is_on(state: tf.Tensor) -> tf.Tensor:
    """Returns whether the next step is in full precision; the state is zeros at the start."""
    return state[_SINCE] < PATIENCE


def steps(state: tf.Tensor) -> tf.Tensor:
    """Returns how many steps were in full precision so far, a float32 scalar."""
    return state[_STEPS]


def report(state: tf.Tensor) -> tf.Tensor:
    """Returns what replicas sum up, a float32 scalar: the squared norm of the step before.

    Each computes it from the same sums, but not necessarily in the same order of additions. With
    the sum of what each of them found, they decide alike.
    """
    return state[_NORM]


def after_step(state: tf.Tensor, reported: tf.Tensor, sums: Any) -> tf.Tensor:
    """Returns the state after a step in full precision, float32 [SIZE].

    `reported` is the sum of `report` over all replicas, and `sums` are the summed gradients of this
    step, of any float types; of a `tf.IndexedSlices` each row occurs once.
    """
    average, weight, maximum, since, done, _ = tf.unstack(state)
    # In the first step there is no report yet, and after an overflow the report is of no use.
    counts = tf.logical_and(done > 0, tf.math.is_finite(reported))
    decay = 1 - 1 / PATIENCE
    average = tf.where(counts, decay * average + (1 - decay) * reported, average)
    weight = tf.where(counts, decay * weight + (1 - decay), weight)
    norm = tf.math.divide_no_nan(average, weight)
    grows = norm > _GROWTH * maximum
    maximum = tf.where(grows, norm, maximum)
    since = tf.where(tf.logical_or(grows, tf.equal(done, 0)), 0.0, since + 1)
    dense = [total.values if isinstance(total, tf.IndexedSlices) else total for total in sums]
    # This is one op for each tensor, and makes no copy of the tensor.
    halves = [tf.nn.l2_loss(tf.cast(total, tf.float32)) for total in dense]
    return tf.stack([average, weight, maximum, since, done + 1, 2 * tf.add_n(halves)])
