"""Wrappers of the ops that pack messages for the compact wire, and unpack them."""

import collections
import math
from collections.abc import Iterable, Sequence

import tensorflow as tf

from tf_gc.ops import _loader
from tf_gc.ops._arguments import attributes
from tf_gc.ops.library import block_size, functions


def periods(shapes: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Returns after how many blocks the rows of matrices begin at the same place of a block again.

    All dimensions of a shape but the last one count as rows, so that a convolution has a column for
    each filter. The result, for `pack`, has the periods of the tensors with most elements: none of
    vectors, of tensors with few blocks, or of rows that are too long.
    """
    library = functions()
    elements: collections.Counter[int] = collections.Counter()
    for shape in shapes:
        size = math.prod(shape)
        if len(shape) < 2 or size < library.tf_gc_tile_blocks() * block_size():
            continue
        period = shape[-1] // math.gcd(shape[-1], block_size())
        if period <= library.tf_gc_largest_period():
            elements[period] += size
    return tuple(period for period, _ in elements.most_common(library.tf_gc_most_periods()))


def pack(
    messages: tf.Tensor,
    codec: str = "two_bit",
    threshold: float | str = "auto",
    periods: Sequence[int] = (),
) -> tuple[tf.Tensor, tf.Tensor]:
    """Packs messages into fewer words, without loss: frequent codes take fewer bits.

    `messages`, int64 [rows, words], are those of `encode` or `reencode`, of a codec of two bits or
    more: one bit has no compact form. `periods` are at most 4 numbers from 1 to 4096, from
    `tf_gc.ops.periods` for the tensors in the messages. The codes of a column are packed together
    where that takes fewer bits.

    Returns:
      The compact messages, int64 [rows, n] with n from `words` on, and their lengths, int64 [rows].
      The compact message of row `r` is in the first `lengths[r]` words, which are at most `words`;
      the others are 0.
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
    """Unpacks messages of `words` words, int64 [rows, words], to the same bits.

    Each row of `compact`, int64 [rows, n], has the words of a compact message that `pack` made with
    this codec and threshold, and perhaps zeros after them; anything else is an error.
    """
    return _loader.load().tf_gc_unpack(
        compact=compact, words=tf.cast(words, tf.int64), **attributes(codec, threshold)
    )
