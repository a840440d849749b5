"""Numbers as they are, or in 16 bits: bfloat16 or float16."""

import dataclasses
from typing import ClassVar

import tensorflow as tf

from tf_gc.codecs.codec import Codec, Tensors, Variables


@dataclasses.dataclass(frozen=True)
class CastCodec(Codec):
    """Sends each element as the nearest number of a dtype, and keeps no residuals.

    Sums are made in float32, in the order of the ranks. In a scatter-gather they are rounded to 16
    bits once more.
    """

    dtype: str  # "bfloat16", "float16" or, for what is not to be rounded, "float32"

    native: ClassVar[bool] = False

    def bits(self, replicas: int) -> float:
        return 8.0 * tf.as_dtype(self.dtype).size

    def encode(self, gradients: Tensors, residuals: Variables) -> tf.Tensor:
        return self._messages(gradients, 1)

    def decode(self, messages: Tensors, like: Tensors) -> list[tf.Tensor]:
        return _split(self._sum(messages), like)

    def encode_shards(
        self, gradients: Tensors, residuals: Variables, shards: int, own: int
    ) -> tf.Tensor:
        return self._messages(gradients, shards)

    def sum_shard(
        self, messages: Tensors, gradients: Tensors, residuals: Variables, shards: int, own: int
    ) -> tf.Tensor:
        return self._messages([self._sum(messages)], 1)

    def decode_shards(self, messages: Tensors, like: Tensors, replicas: int) -> list[tf.Tensor]:
        rows = [self._numbers(message) for message in messages]
        return _split(tf.reshape(tf.concat(rows, axis=0), [-1]), like)

    def count_sent(
        self, messages: tf.Tensor, own: int | None = None, own_sum: tf.Tensor | None = None
    ) -> tf.Tensor:
        # Zero and minus zero have no bits set but the sign.
        numbers = tf.cast(self._numbers(messages), tf.float32)
        count = tf.math.count_nonzero(numbers)
        with tf.device("CPU:0"):
            return tf.identity(count)

    def _messages(self, tensors: Tensors, rows: int) -> tf.Tensor:
        """Returns tensors one after the other, rounded, int64 [rows, words]."""
        in_word = tf.int64.size // tf.as_dtype(self.dtype).size
        parts = [tf.reshape(tf.cast(tensor, self.dtype), [-1]) for tensor in tensors]
        elements = sum(tensor.shape.num_elements() for tensor in tensors)
        if rest := -elements % (rows * in_word):
            parts.append(tf.zeros([rest], self.dtype))
        numbers = tf.concat(parts, axis=0) if len(parts) > 1 else parts[0]
        return tf.bitcast(tf.reshape(numbers, [rows, -1, in_word]), tf.int64)

    def _numbers(self, messages: tf.Tensor) -> tf.Tensor:
        """Returns what `_messages` rounded, of shape [rows, numbers]."""
        return tf.reshape(tf.bitcast(messages, self.dtype), [messages.shape[0], -1])

    def _sum(self, messages: Tensors) -> tf.Tensor:
        """Returns the sum of all rows in their order, float32 [numbers]."""
        rows = [row for message in messages for row in tf.unstack(self._numbers(message))]
        total = tf.cast(rows[0], tf.float32)
        for row in rows[1:]:
            total += tf.cast(row, tf.float32)
        return total

    def __str__(self) -> str:
        return self.dtype


def _split(numbers: tf.Tensor, like: Tensors) -> list[tf.Tensor]:
    """Returns tensors of the shapes and dtypes of `like`, one after the other."""
    results, begin = [], 0
    for tensor in like:
        size = tensor.shape.num_elements()
        part = tf.reshape(numbers[begin : begin + size], tensor.shape)
        results.append(tf.cast(part, tensor.dtype))
        begin += size
    return results
