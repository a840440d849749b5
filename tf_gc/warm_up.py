"""Warm-up: the first steps in full precision, ended by a rule.

An optimizer that divides by the size of past gradients, such as Adam, remembers for long the noise
that compression adds to its first and largest ones. Deep Gradient Compression (Lin et al. 2018)
and 1-bit Adam (Tang et al. 2021) therefore begin with full precision. Here that lasts until the
squared norm of the summed gradients, averaged over the latest steps, has not grown for as many
steps as the average looks back. That average is the sum of what Adam keeps of squared
gradients: 1-bit Adam, too, waits until it is stable.
"""

from typing import Any

import tensorflow as tf

# The steps that the average looks back, and those without growth that end the warm-up.
PATIENCE = 10
# What counts as growth: so much more than the maximum so far.
_GROWTH = 1.01

# What a variable of the state holds.
SIZE = 6
_AVERAGE, _WEIGHT, _MAXIMUM, _SINCE, _STEPS, _NORM = range(SIZE)


def is_on(state: tf.Tensor) -> tf.Tensor:
    """Returns whether the next step is in full precision, a bool scalar.

    Args:
      state: float32 [SIZE]; zeros at the start.
    """
    return state[_SINCE] < PATIENCE


def steps(state: tf.Tensor) -> tf.Tensor:
    """Returns how many steps were in full precision so far, a float32 scalar."""
    return state[_STEPS]


def report(state: tf.Tensor) -> tf.Tensor:
    """Returns what replicas sum up, a float32 scalar: the squared norm of the step before.

    Each computes it from the same sums, but not necessarily in the same order of additions. That
    they add up what each found makes them decide alike.
    """
    return state[_NORM]


def after_step(state: tf.Tensor, reported: tf.Tensor, sums: Any) -> tf.Tensor:
    """Returns the state after a step in full precision, float32 [SIZE].

    Args:
      state: float32 [SIZE], the state before.
      reported: the sum of `report` over all replicas, a float32 scalar.
      sums: the summed gradients of this step, of any shapes and float types.
    """
    average, weight, maximum, since, done, _ = tf.unstack(state)
    # Of the first step there is no report yet; of one that overflowed there is none of use.
    counts = tf.logical_and(done > 0, tf.math.is_finite(reported))
    decay = 1 - 1 / PATIENCE
    average = tf.where(counts, decay * average + (1 - decay) * reported, average)
    weight = tf.where(counts, decay * weight + (1 - decay), weight)
    norm = tf.math.divide_no_nan(average, weight)
    grows = norm > _GROWTH * maximum
    maximum = tf.where(grows, norm, maximum)
    since = tf.where(tf.logical_or(grows, tf.equal(done, 0)), 0.0, since + 1)
    # One op for each tensor, without a copy of it.
    halves = [tf.nn.l2_loss(tf.cast(total, tf.float32)) for total in sums]
    return tf.stack([average, weight, maximum, since, done + 1, 2 * tf.add_n(halves)])
