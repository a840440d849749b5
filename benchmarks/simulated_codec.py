"""A codec whose levels, blocks and rounding are arguments, to choose a real codec by.

Its messages are the numbers that a real codec's codes would stand for. It runs under the real
strategies and plans, with their residuals, and counts the entropy of the codes.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import tensorflow as tf

from tf_gc.codecs import Codec
from tf_gc.params import CompressionParams, Gradient, LeftAlone
from tf_gc.reducers.codes import Codes
from tf_gc.reducers.reducer import Spec

Tensors = Sequence[tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Simulated(CompressionParams):
    """Arguments of a simulated codec.

    Attributes:
      levels: the magnitudes that are sent, ascending, as fractions of a block's scale.
      block: elements of a block.
      scale: what a block's scale is: "max", its largest magnitude, or a multiple of the root of
        its mean square, such as "4 rms".
      rounding: "nearest" or "stochastic".
      sum_levels: the levels for sums, if they are others.
      bypass_size: gradients with fewer elements are not compressed.
      plan: who sends what to whom.
      warm_up: whether the first steps are in full precision.
    """

    levels: tuple[float, ...]
    block: int = 128
    scale: str = "max"
    rounding: str = "nearest"
    sum_levels: tuple[float, ...] | None = None
    bypass_size: int = 2048
    plan: str = "all_gather"
    warm_up: bool = True

    def specs(self) -> tuple[Spec, ...]:
        return (Codes(_SimulatedCodec(self), self.plan, warm_up=self.warm_up),)

    def spec_of(self, gradient: Gradient) -> Spec | LeftAlone:
        if gradient.sparse or gradient.elements < self.bypass_size:
            return LeftAlone(gradient.path, "sparse or small")
        return self.specs()[0]


class Entropy:
    """Bits of the codes of all gradients, if each bucket's codes were coded by their frequency."""

    def __init__(self) -> None:
        self.bits = tf.Variable(0.0, trainable=False, dtype=tf.float64)
        self.elements = tf.Variable(0.0, trainable=False, dtype=tf.float64)

    def add(self, codes: tf.Tensor, levels: int, block: int) -> None:
        counts = tf.cast(tf.math.bincount(tf.reshape(codes, [-1]), minlength=levels), tf.float64)
        total = tf.reduce_sum(counts)
        shares = counts / total
        entropy = -tf.reduce_sum(tf.math.xlogy(shares, shares)) / tf.math.log(2.0 + 0 * total)
        self.bits.assign_add(total * (entropy + 16 / block))
        self.elements.assign_add(total)

    def mean(self) -> float:
        """Returns bits of an element, scales included."""
        return float(self.bits.numpy() / max(self.elements.numpy(), 1))

    def reset(self) -> None:
        self.bits.assign(0.0)
        self.elements.assign(0.0)


@functools.cache
def entropy() -> Entropy:
    """Returns what all simulated codecs of this process count with."""
    with tf.init_scope():
        return Entropy()


@dataclasses.dataclass(frozen=True)
class _SimulatedCodec(Codec):
    params: Simulated

    def bits(self, replicas: int) -> float:
        return 32.0

    def encode(self, gradients: Tensors, residuals: Sequence[tf.Variable]) -> tf.Tensor:
        values = self._blocks(gradients) + self._blocks(residuals)
        sent = self._rounded(values, self.params.levels, count=True)
        self._keep(values - sent, residuals)
        return _message(sent[None])

    def decode(self, messages: Tensors, like: Tensors) -> list[tf.Tensor]:
        rows = tf.concat([_values(message) for message in messages], axis=0)
        return self._tensors(tf.reduce_sum(rows, axis=0), like)

    def encode_shards(
        self, gradients: Tensors, residuals: Sequence[tf.Variable], shards: int, own: int
    ) -> tf.Tensor:
        values = self._sharded(gradients, shards) + self._sharded(residuals, shards)
        others = tf.reshape(tf.one_hot(own, shards, 0.0, 1.0), [shards, 1, 1])
        sent = self._rounded(values, self.params.levels, count=True) * others
        left = tf.where(others > 0, values - sent, self._sharded(residuals, shards))
        self._keep(left, residuals)
        return _message(sent)

    def sum_shard(
        self,
        messages: Tensors,
        gradients: Tensors,
        residuals: Sequence[tf.Variable],
        shards: int,
        own: int,
    ) -> tf.Tensor:
        rows = tf.concat([_values(message) for message in messages], axis=0)
        kept = self._sharded(residuals, shards)
        # This replica's own message has zeros.
        mine = (self._sharded(gradients, shards) + kept)[own]
        total = tf.reshape(tf.reduce_sum(rows, axis=0), mine.shape) + mine
        sent = self._rounded(total, self.params.sum_levels or self.params.levels, count=False)
        chosen = tf.reshape(tf.one_hot(own, shards, True, False), [shards, 1, 1])
        self._keep(tf.where(chosen, (total - sent)[None], kept), residuals)
        return _message(sent[None])

    def decode_shards(self, messages: Tensors, like: Tensors, replicas: int) -> list[tf.Tensor]:
        rows = tf.concat([_values(message) for message in messages], axis=0)
        return self._tensors(tf.reshape(rows, [-1]), like)

    def count_sent(
        self, messages: tf.Tensor, own: int | None = None, own_sum: tf.Tensor | None = None
    ) -> tf.Tensor:
        count = tf.math.count_nonzero(_values(messages))
        return count if own_sum is None else count + tf.math.count_nonzero(_values(own_sum))

    def _rounded(self, values: tf.Tensor, levels: Sequence[float], count: bool) -> tf.Tensor:
        """Returns what codes for `values`, [..., block], stand for."""
        magnitudes = tf.abs(values)
        if self.params.scale == "max":
            scales = tf.reduce_max(magnitudes, axis=-1, keepdims=True)
        else:
            factor = float(self.params.scale.removesuffix(" rms"))
            scales = factor * tf.sqrt(tf.reduce_mean(values**2, axis=-1, keepdims=True))
        scales = tf.cast(tf.cast(scales, tf.bfloat16), tf.float32)
        magnitudes = tf.math.divide_no_nan(magnitudes, scales)
        points = [0.0, *levels]
        if self.params.rounding == "stochastic":
            codes = tf.zeros_like(magnitudes, tf.int32)
            chance = tf.random.uniform(tf.shape(magnitudes))
            for low, high in zip(points, levels, strict=False):
                share = (magnitudes - low) / (high - low)
                codes += tf.cast(chance < share, tf.int32)
        else:
            boundaries = [(a + b) / 2 for a, b in itertools.pairwise(points)]
            codes = tf.add_n([tf.cast(magnitudes >= bound, tf.int32) for bound in boundaries])
        signs = tf.sign(values)
        if count:
            symbols = codes * tf.cast(signs, tf.int32) + len(levels)
            entropy().add(symbols, 2 * len(levels) + 1, self.params.block)
        return tf.gather(tf.constant(points), codes) * signs * scales

    def _blocks(self, tensors: Sequence[tf.Tensor | tf.Variable]) -> tf.Tensor:
        """Returns all elements, float32 [blocks, block]; each tensor begins with a block."""
        block = self.params.block
        parts = []
        for tensor in tensors:
            flat = tf.reshape(tf.cast(tensor, tf.float32), [-1])
            parts.append(tf.pad(flat, [[0, -tensor.shape.num_elements() % block]]))
        return tf.reshape(tf.concat(parts, axis=0), [-1, block])

    def _sharded(self, tensors: Sequence[tf.Tensor | tf.Variable], shards: int) -> tf.Tensor:
        """Returns all elements, float32 [shards, blocks, block]."""
        blocks = self._blocks(tensors)
        blocks = tf.pad(blocks, [[0, -blocks.shape[0] % shards], [0, 0]])
        return tf.reshape(blocks, [shards, -1, self.params.block])

    def _tensors(self, values: tf.Tensor, like: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns what `_blocks` or `_sharded` put together."""
        values, results, begin = tf.reshape(values, [-1]), [], 0
        for tensor in like:
            size = tensor.shape.num_elements()
            part = tf.reshape(values[begin : begin + size], tensor.shape)
            results.append(tf.cast(part, tensor.dtype))
            begin += -(-size // self.params.block) * self.params.block
        return results

    def _keep(self, left: tf.Tensor, residuals: Sequence[tf.Variable]) -> None:
        for residual, value in zip(residuals, self._tensors(left, residuals), strict=True):
            residual.assign(value)


def _message(values: tf.Tensor) -> tf.Tensor:
    """Returns float32 [rows, ...] as int64 [rows, words]."""
    return tf.bitcast(tf.reshape(values, [values.shape[0], -1, 2]), tf.int64)


def _values(message: tf.Tensor) -> tf.Tensor:
    """Returns what `_message` was given, as float32 [rows, elements]."""
    values = tf.bitcast(message, tf.float32)
    return tf.reshape(values, [tf.shape(message)[0], -1])
