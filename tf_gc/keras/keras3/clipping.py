"""Clipping: of the summed gradients, by the norms that all replicas agree on; and of rows.

Keras clips the gradients of each replica, whose norms differ from the norm of their sum, before the
sum. Here the sums are clipped, as a process does that trains alone on the whole batch.
"""

from typing import Any

import tensorflow as tf

# A gradient is a tensor or `tf.IndexedSlices`: Keras has left out those that are `None`.


def clip_sums(optimizer: Any, sums: list[Any]) -> list[Any]:
    """Returns summed gradients, clipped as the optimizer is told to; a sparse one stays sparse.

    All replicas have to call it, with the same sums. Numbers that are not finite give what they
    give when Keras clips.
    """
    if (limit := optimizer.clipnorm) and limit > 0:
        norms = _agreed(tf.sqrt(_squared_norms(sums)))
        factors = tf.unstack(limit / tf.maximum(norms, limit), num=len(sums))
        return [*map(_scaled, sums, factors)]
    if (limit := optimizer.global_clipnorm) and limit > 0:
        norm = _agreed(tf.sqrt(tf.reduce_sum(_squared_norms(sums))))
        factor = limit / tf.maximum(norm, limit) + (norm - norm)
        return [_scaled(total, factor) for total in sums]
    if (limit := optimizer.clipvalue) and limit > 0:
        return [tf.clip_by_value(total, -limit, limit) for total in sums]
    return sums


def clips_rows(optimizer: Any, gradients: list[Any]) -> bool:
    """Returns whether Keras clips rows as a dense table, of which all would be sent."""
    by_each, by_all = optimizer.clipnorm or 0, optimizer.global_clipnorm or 0
    return by_all > 0 >= by_each and any(isinstance(g, tf.IndexedSlices) for g in gradients)


def clip_rows(limit: float, gradients: list[Any]) -> list[Any]:
    """Returns a replica's gradients, clipped by `global_clipnorm` to the values that Keras gives.

    Rows stay rows. Of an index that occurs several times each row counts by itself in the norm, as
    it does in Keras.
    """
    norm = tf.sqrt(tf.reduce_sum(_squared_norms(gradients)))
    # NaN for a norm that is not finite, as in Keras.
    factor = limit * tf.minimum(1 / norm, 1 / limit) + (norm - norm)
    return [_scaled(gradient, factor) for gradient in gradients]


def _agreed(norms: tf.Tensor) -> tf.Tensor:
    """Returns the same bits on all replicas, which may have added squares in different orders."""
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.MEAN, norms)


def _squared_norms(gradients: list[Any]) -> tf.Tensor:
    """Returns a float32 or float64 vector; rows of a sparse gradient count each by itself."""
    dense = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]
    dtype = tf.float64 if any(g.dtype == tf.float64 for g in dense) else tf.float32
    return tf.stack([tf.reduce_sum(tf.square(tf.cast(g, dtype))) for g in dense])


def _scaled(gradient: Any, factor: tf.Tensor) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        values = _scaled(gradient.values, factor)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)
