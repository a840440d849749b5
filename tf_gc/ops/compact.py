"""Wrappers of the ops that pack messages for the compact wire, and unpack them."""

import tensorflow as tf

from tf_gc.ops import _library
from tf_gc.ops._arguments import attributes


def pack(
    messages: tf.Tensor, codec: str = "two_bit", threshold: float | str = "auto"
) -> tuple[tf.Tensor, tf.Tensor]:
    """Packs messages into fewer words, without loss: frequent codes take fewer bits.

    Args:
      messages: int64, shape [rows, words]: messages that `encode` or `reencode` made.
      codec: the codec that the messages were encoded with, other than `"one_bit"`: codes of one
        bit do not get smaller.
      threshold: the threshold that the messages were encoded with.

    Returns:
      The compact messages, int64, shape [rows, n] with n from `words` on, and their lengths, int64,
      shape [rows]. The compact message of row `r` is in the first `lengths[r]` words, which are at
      most `words`; the others are 0.

    Raises:
      ValueError: if the threshold is a string other than `"auto"`.
      tf.errors.InvalidArgumentError: if no codec has that name, its messages have no compact form,
        the threshold is out of range, or a message has another length, wire version, codec,
        threshold or number of blocks.
    """
    return _library.load().tf_gc_pack(messages=messages, **attributes(codec, threshold))


def unpack(
    compact: tf.Tensor,
    words: int | tf.Tensor,
    codec: str = "two_bit",
    threshold: float | str = "auto",
) -> tf.Tensor:
    """Unpacks messages.

    Args:
      compact: int64, shape [rows, n]: in each row the words of a compact message that `pack` made,
        and perhaps zeros after them.
      words: the number of words that each message had; a number, or an int64 scalar.
      codec: the codec that the messages were packed with.
      threshold: the threshold that the messages were packed with.

    Returns:
      The messages that were packed: int64, shape [rows, words], the same bits.

    Raises:
      ValueError: if the threshold is a string other than `"auto"`.
      tf.errors.InvalidArgumentError: if no codec has that name, its messages have no compact form,
        the threshold is out of range, no message has so many words, a row is no compact message of
        that length, or its message has another wire version, codec, threshold or number of blocks.
    """
    return _library.load().tf_gc_unpack(
        compact=compact, words=tf.cast(words, tf.int64), **attributes(codec, threshold)
    )
