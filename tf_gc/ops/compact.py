"""Wrappers of the ops that pack messages for the compact wire, and unpack them."""

import collections
import math
from collections.abc import Iterable, Sequence

import tensorflow as tf

from tf_gc.ops import _loader
from tf_gc.ops._arguments import attributes
from tf_gc.ops.library import block_size, period_limits


def periods(shapes: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Returns after how many blocks the rows of matrices begin at the same place of a block again.

    Args:
      shapes: the shapes of the tensors in a message. All dimensions of a tensor but the last one
        count as rows, so that a convolution has a column for each filter.

    Returns:
      The periods of the tensors with most elements, for `pack`: none of vectors, of tensors with
      few blocks, or of rows that are too long.
    """
    limits = period_limits()
    elements: collections.Counter[int] = collections.Counter()
    for shape in shapes:
        size = math.prod(shape)
        if len(shape) < 2 or size < limits.tile * block_size():
            continue
        period = shape[-1] // math.gcd(shape[-1], block_size())
        if period <= limits.largest:
            elements[period] += size
    return tuple(period for period, _ in elements.most_common(limits.count))


def pack(
    messages: tf.Tensor,
    codec: str = "two_bit",
    threshold: float | str = "auto",
    periods: Sequence[int] = (),
) -> tuple[tf.Tensor, tf.Tensor]:
    """Packs messages into fewer words, without loss: frequent codes take fewer bits.

    Args:
      messages: int64, shape [rows, words]: messages that `encode` or `reencode` made.
      codec: the codec that the messages were encoded with, other than `"one_bit"`: codes of one
        bit do not get smaller.
      threshold: the threshold that the messages were encoded with.
      periods: at most 4 numbers from 1 to 4096, from `tf_gc.ops.periods` for the tensors in the
        messages. The codes of a column are packed together where that takes fewer bits.

    Returns:
      The compact messages, int64, shape [rows, n] with n from `words` on, and their lengths, int64,
      shape [rows]. The compact message of row `r` is in the first `lengths[r]` words, which are at
      most `words`; the others are 0.

    Raises:
      ValueError: if the threshold is a string other than `"auto"`.
      tf.errors.InvalidArgumentError: if no codec has that name, its messages have no compact form,
        the threshold is out of range, there are too many periods or one is out of range, or a
        message has another length, wire version, codec, threshold or number of blocks.
    """
    return _loader.load().tf_gc_pack(
        messages=messages, periods=list(periods), **attributes(codec, threshold)
    )


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
        the threshold is out of range, no message has `words` words, a row is no compact message of
        that length, or its message has another wire version, codec, threshold or number of blocks.
    """
    return _loader.load().tf_gc_unpack(
        compact=compact, words=tf.cast(words, tf.int64), **attributes(codec, threshold)
    )
