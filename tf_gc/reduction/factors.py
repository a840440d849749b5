"""Low rank: a matrix is sent as one of two thin factors, in turns (ACP-SGD).

PowerSGD (Vogels et al. 2019) sends a matrix M, gradient plus residual, as the product of two
factors P [rows, rank] and Q [columns, rank], which takes two sums over the replicas, one after the
other. ACP-SGD (Zhang et al. 2023, arXiv 2306.08881) sends one factor in a step and the other one in
the next: with the Q of the step before, its columns made orthonormal, P = M Q is summed up, the
step's sum is P Qᵀ, and a replica's new residual is M - P Qᵀ of its own P. The next step does the
same to Mᵀ, with the columns of P made orthonormal. So the steps together are a power iteration, by
which the factors follow what is largest in the gradients.

The factors of a matrix are one vector, float32 [1 + rank * (rows + columns)]: the turn, 0 or 1, the
columns of P one after the other, those of Q. All replicas have the same.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tf_gc import ops
from tf_gc.compression_state import FACTORS
from tf_gc.reduction.group import is_cpu
from tf_gc.state.seat import Slot

# As in custom_ops/lib/low_rank/factors.cc.
_INDEPENDENT = 1e-6
# As kMaxMagnitude in custom_ops/lib/codec/block.h: more would soon make sums overflow.
_MAX_MAGNITUDE = 2.0**120

# Sums of gradients, and the factors of the next step.
Decoded: TypeAlias = tuple[list[tf.Tensor], list[tf.Tensor]]


def matrix_of(shape: Sequence[int]) -> tuple[int, int]:
    """Returns rows and columns of the matrix that a tensor is sent as.

    The first axes are its rows and the last ones its columns, so that the two numbers are as small
    as possible. So the kernel of a convolution has a column for each output, and that of attention
    keeps its heads together.
    """
    splits = [(math.prod(shape[:i]), math.prod(shape[i:])) for i in range(1, len(shape))]
    return min(splits, key=sum, default=(math.prod(shape), 1))


def slot_of(shape: Sequence[int], rank: int) -> Slot:
    """Returns the slot of the factors of a tensor."""
    return Slot(FACTORS, 1 + rank * sum(matrix_of(shape)))


class Layout:
    """Which factors the steps send of a bucket, and in how large a message.

    Some matrices begin with P and others with Q, so that the messages of both turns have about the
    same size. The shorter one ends with zeros.

    Attributes:
      rank: the columns of a factor.
      rows: the rows of each matrix.
      p_first: whether turn 0 sends P of a matrix and turn 1 Q, or the other way round.
      size: the elements of a message.
    """

    def __init__(self, shapes: Sequence[Sequence[int]], rank: int) -> None:
        self.rank = rank
        matrices = [matrix_of(shape) for shape in shapes]
        self.rows = [rows for rows, _ in matrices]
        self.p_first: list[bool] = []
        sizes = [0, 0]
        for rows, columns in matrices:
            # The turn that is behind gets the longer factor.
            p_first = (rows >= columns) == (sizes[0] <= sizes[1])
            self.p_first.append(p_first)
            sizes[0] += rank * (rows if p_first else columns)
            sizes[1] += rank * (columns if p_first else rows)
        self.size = max(sizes)

    def encode(
        self,
        gradients: Sequence[tf.Tensor],
        residuals: Sequence[tf.Variable],
        factors: Sequence[tf.Tensor],
        device: str,
    ) -> tf.Tensor:
        """Returns a replica's message, and updates its residuals; as `tf_gc.ops.encode_factors`.

        Args:
          gradients: those of the bucket.
          residuals: their residuals.
          factors: their vectors of factors.
          device: the replica's, on which this is called.
        """
        if is_cpu(device):
            return ops.encode_factors(
                gradients, residuals, factors, self.rows, self.p_first, self.rank, self.size
            )
        before = [residual.read_value() for residual in residuals]

        def encode(turn: int) -> tuple[tf.Tensor, list[tf.Tensor]]:
            parts, after = [], []
            for matrix, gradient, residual in zip(
                self._of_turn(turn, factors), gradients, before, strict=True
            ):
                sent, rest = matrix.encode(gradient, residual)
                parts.append(tf.reshape(sent, [-1]))
                after.append(rest)
            parts.append(tf.zeros([self.size - sum(part.shape[0] for part in parts)]))
            return tf.concat(parts, 0), after

        message: tf.Tensor
        message, after = _by_turn(factors, encode)
        for residual, value in zip(residuals, after, strict=True):
            residual.assign(value, read_value=False)
        return message

    def decode(
        self,
        total: tf.Tensor,
        factors: Sequence[tf.Tensor],
        like: Sequence[tf.Tensor],
        device: str,
    ) -> Decoded:
        """Returns the sums of the gradients, and the next factors; as `tf_gc.ops.decode_factors`.

        Args:
          total: the sum of the messages.
          factors: the vectors with which they were encoded.
          like: tensors of the shapes and the dtype of the sums.
          device: the replica's, on which this is called.
        """
        if is_cpu(device):
            return ops.decode_factors(total, factors, like, self.rows, self.p_first, self.rank)

        def decode(turn: int) -> Decoded:
            sums, after, start = [], [], 0
            for matrix, gradient in zip(self._of_turn(turn, factors), like, strict=True):
                product, vector = matrix.decode(total[start : start + matrix.size])
                start += matrix.size
                sums.append(tf.cast(tf.reshape(product, gradient.shape), gradient.dtype))
                after.append(tf.concat([[1.0 - turn], vector], 0))
            return sums, after

        decoded: Decoded = _by_turn(factors, decode)
        return decoded

    def _of_turn(self, turn: int, factors: Sequence[tf.Tensor]) -> "list[_Matrix]":
        return [
            _Matrix(vector, rows, self.rank, sends_p=p_first == (turn == 0))
            for vector, rows, p_first in zip(factors, self.rows, self.p_first, strict=True)
        ]


def _by_turn(factors: Sequence[tf.Tensor], build: Callable[[int], Any]) -> Any:
    return tf.cond(factors[0][0] > 0, lambda: build(1), lambda: build(0))


class _Matrix:
    """A matrix in a step on a GPU, in TensorFlow's ops: no library multiplies matrices faster.

    Attributes:
      size: the elements of what it sends.
    """

    def __init__(self, vector: tf.Tensor, rows: int, rank: int, sends_p: bool) -> None:
        columns = (vector.shape[0] - 1) // rank - rows
        self._shape = (rows, columns)
        self._sends_p = sends_p
        p, q = tf.split(vector[1:], [rank * rows, rank * columns])
        self._p, self._q = tf.reshape(p, [rank, rows]), tf.reshape(q, [rank, columns])
        kept = self._q if sends_p else self._p
        start = orthonormal(tf.zeros_like(kept))
        self._basis = tf.where(tf.reduce_all(tf.equal(kept, 0)), start, kept)
        self.size = rank * (rows if sends_p else columns)

    def encode(self, gradient: tf.Tensor, residual: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the factor to send, [rank, n], and the new residual."""
        before = tf.reshape(residual, self._shape)
        matrix = tf.reshape(tf.cast(gradient, tf.float32), self._shape) + before
        sent = tf.matmul(self._basis, matrix, transpose_b=self._sends_p)
        finite = tf.reduce_all(tf.math.is_finite(sent), 0)
        rest = matrix - self._product(sent)
        rest = tf.where(tf.abs(rest) < _MAX_MAGNITUDE, rest, 0.0)
        kept = tf.where(finite[:, None] if self._sends_p else finite, rest, before)
        nan = tf.constant(math.nan, tf.float32)
        return tf.where(finite, sent, nan), tf.reshape(kept, residual.shape)

    def decode(self, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the sum of the matrix, and the columns of both factors for the next step."""
        sent = tf.reshape(total, (self._p if self._sends_p else self._q).shape)
        finite = tf.reduce_all(tf.math.is_finite(sent))
        made = tf.where(finite, orthonormal(sent), self._p if self._sends_p else self._q)
        both = [made, self._basis] if self._sends_p else [self._basis, made]
        return self._product(sent), tf.concat([tf.reshape(each, [-1]) for each in both], 0)

    def _product(self, sent: tf.Tensor) -> tf.Tensor:
        p, q = (sent, self._basis) if self._sends_p else (self._basis, sent)
        return tf.matmul(p, q, transpose_a=True)


def orthonormal(columns: tf.Tensor) -> tf.Tensor:
    """Returns orthonormal columns, [rank, n], as `MakeOrthonormal` in the native library."""
    rank, n = columns.shape
    done: list[tf.Tensor] = []
    noise = _noise(rank, n)
    for k, given in enumerate(tf.unstack(tf.cast(columns, tf.float64))):
        mine, instead = _independent(given, done), _independent(noise[k], done)
        done.append(tf.where(tf.reduce_any(tf.not_equal(mine, 0)), mine, instead))
    return tf.cast(tf.stack(done), tf.float32)


def _independent(column: tf.Tensor, others: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns what is orthogonal to others, of norm 1; zeros if nothing but rounding is left."""
    size = tf.norm(column)
    for _ in range(2):  # what one round leaves, the second one takes out
        for other in others:
            column -= tf.tensordot(column, other, 1) * other
    norm = tf.norm(column)
    return tf.where(norm > _INDEPENDENT * size, tf.math.divide_no_nan(column, norm), 0.0)


def _noise(rank: int, n: int) -> tf.Tensor:
    """Returns numbers in [-1, 1) that look random, and are the same everywhere."""
    x = tf.range(1, rank * n + 1, dtype=tf.int64) * 2654435769 % 2**32
    x = tf.bitwise.bitwise_xor(x, x // 2**16)
    x = x * 2246822519 % 2**32
    x = tf.bitwise.bitwise_xor(x, x // 2**13)
    return tf.reshape((tf.cast(x, tf.float64) - 2.0**31) / 2.0**31, [rank, n])
