"""How parts of sums are stored: in float32, bfloat16, or int8 as whole numbers of scales.

In int8 a value is a vector, [blocks, 132] flattened: for 128 elements a float32 scale and a byte
each, off by at most 1/253 of their largest magnitude; zeros after the last one. The native ops
store the same bits (custom_ops/lib/codec/eight_bit_block.h).
"""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_BLOCK, _SCALE = 128, 4  # bytes


def stored_shape(shape: Sequence[int], dtype: tf.DType) -> tf.TensorShape:
    """Returns the shape of what stores values of `shape`: in int8 [132 * blocks], else the same."""
    blocks = -(-math.prod(shape) // _BLOCK)
    return tf.TensorShape([blocks * (_SCALE + _BLOCK)] if dtype == tf.int8 else shape)


def widened(stored: Any, shape: Sequence[int]) -> tf.Tensor:
    """Returns the float32 values of `shape` that a tensor or variable of any dtype here stores."""
    if stored.dtype != tf.int8:
        return tf.cast(stored, tf.float32)
    blocks = tf.reshape(stored, [-1, _SCALE + _BLOCK])
    scales = tf.bitcast(blocks[:, :_SCALE], tf.float32)
    values = scales[:, tf.newaxis] * tf.cast(blocks[:, _SCALE:], tf.float32)
    return tf.reshape(tf.reshape(values, [-1])[: math.prod(shape)], shape)


def narrowed(value: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Returns what stores float32 values, whose shape is known, in a dtype (`stored_shape`)."""
    if dtype != tf.int8:
        return tf.cast(value, dtype)
    flat = tf.reshape(value, [-1])
    blocks = tf.reshape(tf.pad(flat, [[0, -flat.shape[0] % _BLOCK]]), [-1, _BLOCK])
    scales = tf.reduce_max(tf.abs(blocks), axis=1, keepdims=True) / 127
    scales = tf.where(scales < 2.0**-126, 0.0, scales)
    whole = tf.cast(tf.round(blocks * tf.math.divide_no_nan(1.0, scales)), tf.int8)
    return tf.reshape(tf.concat([tf.bitcast(scales[:, 0], tf.int8), whole], axis=1), [-1])
