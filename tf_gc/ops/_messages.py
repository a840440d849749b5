"""Helpers for the wrappers of all ops: lists of tensors, and sizes of messages."""

import ctypes
from collections.abc import Sequence

import tensorflow as tf

from tf_gc.ops import _library

# The value of the ops' attribute `skip` with which no shard is skipped.
NO_SHARD = -1
# As in custom_ops/lib/wire/wire.h.
_BLOCK_SIZE = 128


def handles(residuals: Sequence[tf.Variable], gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the handles of residuals. ValueError if there are not as many as gradients."""
    if len(gradients) != len(residuals):
        raise ValueError(f"{len(gradients)} gradients need as many residuals, got {len(residuals)}")
    return [getattr(residual, "handle", residual) for residual in residuals]


def as_list(messages: tf.Tensor | Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """Returns a list of tensors with messages. ValueError if it is empty."""
    return non_empty(messages if isinstance(messages, list | tuple) else [messages], "messages")


def non_empty(tensors: Sequence[tf.Tensor], name: str) -> Sequence[tf.Tensor]:
    """Returns `tensors`. ValueError if there are none."""
    if not tensors:
        raise ValueError(f"`{name}` is empty; a bucket has at least one tensor")
    return tensors


def message_bits(codec: int, replicas: int, threshold: float | str) -> float:
    """Returns how many bits an element takes in a message with a sum over `replicas` replicas.

    Args:
      codec: the number of the codec in custom_ops/lib/wire/wire.h.
      replicas: the number of replicas.
      threshold: the codec's threshold, for the text of the error.

    Raises:
      ValueError: if there is no such message.
    """
    library = ctypes.CDLL(str(_library.library_path()))
    size = int(library.tf_gc_block_bytes(codec, ctypes.c_int64(replicas)))
    if size == 0:
        raise ValueError(f"no message sums up {replicas} replicas with threshold {threshold!r}")
    return size * 8 / _BLOCK_SIZE
