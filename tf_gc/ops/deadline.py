"""Limits how long a collective takes, without TensorFlow's own limit, which may crash.

With the attribute `timeout_seconds` TensorFlow ends a collective op whose ring still uses the op's
memory (docs/design.md).
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_gc.ops import _loader


def within(
    seconds: float,
    tensor: tf.Tensor,
    tokens: Sequence[tf.Tensor],
    collective: Callable[[], tf.Tensor],
) -> tf.Tensor:
    """Builds a collective that fails, with all others of this process, if it takes too long.

    `collective` builds it in the current graph and on the current device, with the input `tensor`
    and the ordering tokens `tokens`. If it takes longer than `seconds`, from when its input is
    there, it raises `tf.errors.DeadlineExceededError`.
    """
    ops = _loader.load()
    with tf.control_dependencies([tensor]):
        deadline = ops.tf_gc_begin_deadline(tokens=tokens, seconds=seconds)
    with tf.control_dependencies([deadline]):
        result = collective()
    with tf.control_dependencies([result]):
        end = ops.tf_gc_end_deadline(deadline, tokens=tokens)
    with tf.control_dependencies([end]):
        return tf.identity(result)
