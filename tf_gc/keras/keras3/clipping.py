"""Clipping: of the summed gradients, by the norms that all replicas agree on; and of rows.

Keras clips the gradients of each replica, whose norms differ from the norm of their sum, before the
sum. Here the sums are clipped, as a process does that trains alone on the whole batch.
"""

from typing import Any

import tensorflow as tf

from tf_gc.gradients import GradientValue
from tf_gc.keras.strategy import KerasStrategy
from tf_gc.keras.variables import tf_variable


def clip_sums(optimizer: Any, sums: list[GradientValue]) -> list[GradientValue]:
    """Returns summed gradients, clipped as the optimizer is told to; a sparse one stays sparse.

    All replicas have to call it, with the same sums. Numbers that are not finite give what they
    give when Keras clips.
    """
    present = [i for i, total in enumerate(sums) if total is not None]
    if not present:
        return sums
    clipped = list(sums)
    if (limit := optimizer.clipnorm) and limit > 0:
        norms = _agreed(tf.sqrt(_squared_norms(sums)))
        factors = tf.unstack(limit / tf.maximum(norms, limit), num=len(present))
        for i, factor in zip(present, factors, strict=True):
            clipped[i] = _scaled(sums[i], factor)
    elif (limit := optimizer.global_clipnorm) and limit > 0:
        norm = _agreed(tf.sqrt(tf.reduce_sum(_squared_norms(sums))))
        factor = limit / tf.maximum(norm, limit) + (norm - norm)
        for i in present:
            clipped[i] = _scaled(sums[i], factor)
    elif (limit := optimizer.clipvalue) and limit > 0:
        for i in present:
            clipped[i] = tf.clip_by_value(sums[i], -limit, limit)
    return clipped


# Marks rows that Keras would have made dense.
_DENSE_IN_KERAS = "_tf_gc_dense_in_keras"


def as_sent(strategy: KerasStrategy, gradient: Any, variable: tf.Variable) -> GradientValue:
    """Returns what a replica sends: rows of `clip_rows` only if they are compressed.

    Those that are not are dense, as Keras makes them: an optimizer may square what it gets, and the
    stock ops do not merge rows.
    """
    if not hasattr(gradient, _DENSE_IN_KERAS) or strategy.compresses_rows_of(variable):
        return gradient
    return tf.convert_to_tensor(gradient)


def has_rows_to_clip(
    strategy: KerasStrategy, optimizer: Any, gradients: list[GradientValue]
) -> bool:
    """Returns whether `clip_rows` is to clip a replica's gradients in place of Keras.

    Keras would make rows a dense table, of which all is sent.
    """
    limit = optimizer.global_clipnorm
    if not (limit and limit > 0) or (optimizer.clipnorm and optimizer.clipnorm > 0):
        return False
    if not any(isinstance(gradient, tf.IndexedSlices) for gradient in gradients):
        return False
    variables = map(tf_variable, optimizer._trainable_variables)
    return any(strategy.compresses_rows_of(variable) for variable in variables)


def clip_rows(limit: float, gradients: list[GradientValue]) -> list[GradientValue]:
    """Returns a replica's gradients, clipped by `global_clipnorm` to the values that Keras gives.

    Rows stay rows. Of an index that occurs several times each row counts by itself in the norm, as
    it does in Keras.
    """
    norm = tf.sqrt(tf.reduce_sum(_squared_norms(gradients)))
    # NaN for a norm that is not finite, as in Keras.
    factor = limit * tf.minimum(1 / norm, 1 / limit) + (norm - norm)
    clipped = [g if g is None else _scaled(g, factor) for g in gradients]
    for gradient in clipped:
        if isinstance(gradient, tf.IndexedSlices):
            setattr(gradient, _DENSE_IN_KERAS, True)
    return clipped


def _agreed(norms: tf.Tensor) -> tf.Tensor:
    """Returns the same bits on all replicas, which may have added squares in different orders."""
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.MEAN, norms)


def _squared_norms(gradients: list[GradientValue]) -> tf.Tensor:
    """Returns a float32 or float64 vector; rows of a sparse gradient count each by itself."""
    present = [
        g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients if g is not None
    ]
    dtype = tf.float64 if any(g.dtype == tf.float64 for g in present) else tf.float32
    return tf.stack([tf.reduce_sum(tf.square(tf.cast(g, dtype))) for g in present])


def _scaled(gradient: Any, factor: tf.Tensor) -> GradientValue:
    if isinstance(gradient, tf.IndexedSlices):
        values = _scaled(gradient.values, factor)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)
