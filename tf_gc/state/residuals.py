"""Residuals: what each replica has not sent yet (error feedback)."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.state.registry import Slot
from tf_gc.state.stored import narrowed, widened

# Of any dtype. Its sum over the replicas is the gradient that has not been applied yet.
SLOT = Slot("residual")


def slot_of(dtype: tf.DType) -> Slot:
    """Returns the slot of residuals that have a dtype."""
    return dataclasses.replace(SLOT, dtype=dtype)


def emptied_into(
    gradients: Sequence[Any], residuals: Sequence[tf.Variable], all_rows: bool = False
) -> tuple[Any, ...]:
    """Returns gradients, or their rows, plus residuals, which become zero where that is finite.

    Without residuals it returns the gradients.
    """
    if not residuals:
        return tuple(gradients)
    return tuple(
        _rows_emptied_into(gradient, residual, all_rows)
        if isinstance(gradient, tf.IndexedSlices)
        else _emptied_into(gradient, residual)
        for gradient, residual in zip(gradients, residuals, strict=True)
    )


def _emptied_into(gradient: tf.Tensor, residual: tf.Variable) -> tf.Tensor:
    with tf.device(residual.device):
        waiting = widened(residual, gradient.shape)
        dtype = tf.float64 if gradient.dtype == tf.float64 else tf.float32
        total = tf.cast(gradient, dtype) + tf.cast(waiting, dtype)
        rest = tf.where(tf.math.is_finite(total), 0.0, waiting)
        residual.assign(narrowed(rest, residual.dtype))
        return tf.cast(total, gradient.dtype)


def _rows_emptied_into(
    gradient: tf.IndexedSlices, residual: tf.Variable, all_rows: bool
) -> tf.IndexedSlices:
    with tf.device(residual.device):
        indices = tf.cast(gradient.indices, tf.int64)
        own = indices
        if all_rows:
            waits = tf.reduce_any(tf.not_equal(residual, 0), axis=tf.range(1, residual.shape.rank))
            own = tf.concat([indices, tf.where(waits)[:, 0]], axis=0)
        rows, position = tf.unique(own, out_idx=tf.int64)
        waiting = tf.gather(residual, rows)
        sums = tf.math.unsorted_segment_sum(
            tf.cast(gradient.values, tf.float32), position[: tf.size(indices)], tf.size(rows)
        )
        finite = tf.math.is_finite(sums + tf.cast(waiting, tf.float32))
        nothing = tf.zeros_like(waiting)
        residual.scatter_update(tf.IndexedSlices(tf.where(finite, nothing, waiting), rows))
        sent = tf.cast(tf.where(finite, waiting, nothing), gradient.dtype)
        return tf.IndexedSlices(
            tf.concat([gradient.values, sent], axis=0),
            tf.concat([gradient.indices, tf.cast(rows, gradient.indices.dtype)], axis=0),
            gradient.dense_shape,
        )
