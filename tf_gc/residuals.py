"""Residuals: what each replica has not sent yet (error feedback)."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.state.seat import Slot

# A residual is a variable with `ON_READ` synchronization and `SUM` aggregation: what counts is the
# sum over the replicas, which is the gradient that has not been applied yet.
SLOT = Slot("residual")


def emptied_into(gradients: Sequence[Any], residuals: Sequence[tf.Variable]) -> tuple[Any, ...]:
    """Returns gradients plus residuals, and sets the residuals to zero where that is finite.

    Args:
      gradients: one for each local replica, of the shape of the variable.
      residuals: likewise, float32.
    """
    return tuple(map(_emptied_into, gradients, residuals))


def _emptied_into(gradient: tf.Tensor, residual: tf.Variable) -> tf.Tensor:
    with tf.device(residual.device):
        waiting = residual.read_value()
        dtype = tf.float64 if gradient.dtype == tf.float64 else tf.float32
        total = tf.cast(gradient, dtype) + tf.cast(waiting, dtype)
        residual.assign(tf.where(tf.math.is_finite(total), tf.zeros_like(waiting), waiting))
        return tf.cast(total, gradient.dtype)
