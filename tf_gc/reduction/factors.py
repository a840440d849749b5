"""Low rank: a matrix is sent as the product of two thin factors (PowerSGD).

PowerSGD (Vogels et al. 2019) approximates a matrix M, gradient plus residual, by P Qᵀ, with factors
P [rows, rank] and Q [columns, rank]. With the Q of the step before, P = M Q is summed up over the
replicas, and its columns are made orthonormal. With that P, Q = Mᵀ P is summed up. The step's sum
is P Qᵀ, and a replica's new residual is M - P Qᵀ with its own Q. The steps together are a power
iteration, by which Q follows what is largest in the gradients.

What is kept of a matrix is Q, its columns made orthonormal and one after the other, float32
[rank * columns]. All replicas have the same.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

from tf_gc import ops
from tf_gc.compression_state import FACTORS
from tf_gc.reduction.group import is_cpu
from tf_gc.state.seat import Slot

# As in custom_ops/lib/low_rank/factors.cc.
_INDEPENDENT = 1e-6
# As kMaxMagnitude in custom_ops/lib/codec/block.h: more would soon make sums overflow.
_MAX_MAGNITUDE = 2.0**120

Tensors: TypeAlias = Sequence[tf.Tensor]


def matrix_of(shape: Sequence[int]) -> tuple[int, int]:
    """Returns rows and columns of the matrix that a tensor is sent as.

    The first axes are its rows and the last ones its columns, so that the two numbers are as small
    as possible. So the kernel of a convolution has a column for each output, and that of attention
    keeps its heads together.
    """
    splits = [(math.prod(shape[:i]), math.prod(shape[i:])) for i in range(1, len(shape))]
    return min(splits, key=sum, default=(math.prod(shape), 1))


def slot_of(shape: Sequence[int], rank: int) -> Slot:
    """Returns the slot of what is kept of a tensor."""
    return Slot(FACTORS, rank * matrix_of(shape)[1])


class Matrices:
    """The matrices of a bucket on one replica.

    On CPUs the native ops do the work. On GPUs it is written in TensorFlow's ops: no library
    multiplies matrices faster there.
    """

    def __init__(
        self,
        device: str,
        gradients: Tensors,
        residuals: Sequence[tf.Variable],
        factors: Tensors,
        rank: int,
    ) -> None:
        """Initializes the object.

        Args:
          device: the replica's, on which all methods are called.
          gradients: of the shapes of their variables.
          residuals: their residuals.
          factors: what is kept of them.
          rank: the columns of a factor.
        """
        self._native = is_cpu(device)
        self._gradients = gradients
        self._residuals = residuals
        self._factors = factors
        self._rank = rank
        self._shapes = [matrix_of(gradient.shape) for gradient in gradients]
        self._rows = [rows for rows, _ in self._shapes]

    def project(self) -> tf.Tensor:
        """Returns the columns of P, as `tf_gc.ops.project_factors`."""
        if self._native:
            arguments = (self._gradients, self._residuals, self._factors)
            return ops.project_factors(*arguments, self._rows, self._rank)
        parts = []
        for matrix, vector in zip(self._matrices(), self._factors, strict=True):
            q = tf.reshape(vector, [self._rank, -1])
            start = orthonormal(tf.zeros_like(q))
            q = tf.where(tf.reduce_all(tf.equal(q, 0)), start, q)
            p = tf.matmul(q, matrix, transpose_b=True)
            finite = tf.reduce_all(tf.math.is_finite(p), 0)
            parts.append(tf.reshape(tf.where(finite, p, 0.0), [-1]))
        return tf.concat(parts, 0)

    def encode(self, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the columns of Q and those of P, as `tf_gc.ops.encode_factors`.

        Args:
          total: the sum of all replicas' results of `project`.
        """
        if self._native:
            arguments = (self._gradients, self._residuals, total)
            return ops.encode_factors(*arguments, self._rows, self._rank)
        total = tf.where(tf.math.is_finite(total), total, 0.0)
        sent, bases = [], []
        for matrix, residual, part in zip(
            self._matrices(), self._residuals, self._split(total, 0), strict=True
        ):
            p = orthonormal(part)
            q = tf.matmul(p, matrix)
            finite = tf.reduce_all(tf.math.is_finite(q), 0)
            rest = matrix - tf.matmul(p, q, transpose_a=True)
            rest = tf.where(tf.abs(rest) < _MAX_MAGNITUDE, rest, 0.0)
            kept = tf.where(finite, rest, tf.reshape(residual, matrix.shape))
            residual.assign(tf.reshape(kept, residual.shape), read_value=False)
            sent.append(tf.reshape(tf.where(finite, q, math.nan), [-1]))
            bases.append(tf.reshape(p, [-1]))
        return tf.concat(sent, 0), tf.concat(bases, 0)

    def decode(self, total: tf.Tensor, basis: tf.Tensor) -> tuple[Tensors, Tensors]:
        """Returns the sums and what to keep for the next step, as `tf_gc.ops.decode_factors`.

        Args:
          total: the sum of all replicas' columns of Q.
          basis: the columns of P.
        """
        if self._native:
            arguments = (total, basis, self._factors, self._gradients)
            return ops.decode_factors(*arguments, self._rows, self._rank)
        sums, after = [], []
        for gradient, before, p, q in zip(
            self._gradients,
            self._factors,
            self._split(basis, 0),
            self._split(total, 1),
            strict=True,
        ):
            product = tf.reshape(tf.matmul(p, q, transpose_a=True), gradient.shape)
            sums.append(tf.cast(product, gradient.dtype))
            finite = tf.reduce_all(tf.math.is_finite(q))
            after.append(tf.where(finite, tf.reshape(orthonormal(q), [-1]), before))
        return sums, after

    def _matrices(self) -> list[tf.Tensor]:
        return [
            tf.reshape(tf.cast(gradient, tf.float32) + residual, shape)
            for gradient, residual, shape in zip(
                self._gradients, self._residuals, self._shapes, strict=True
            )
        ]

    def _split(self, vector: tf.Tensor, axis: int) -> list[tf.Tensor]:
        """Returns the factors of all matrices, of which a vector has the columns."""
        sizes = [self._rank * shape[axis] for shape in self._shapes]
        return [tf.reshape(part, [self._rank, -1]) for part in tf.split(vector, sizes)]


def orthonormal(columns: tf.Tensor) -> tf.Tensor:
    """Returns orthonormal columns, [rank, n], as `MakeOrthonormal` in the native library."""
    rank, n = columns.shape
    done: list[tf.Tensor] = []
    noise = _noise(rank, n)
    for k, given in enumerate(tf.unstack(tf.cast(columns, tf.float64))):
        mine, instead = _independent(given, done), _independent(noise[k], done)
        done.append(tf.where(tf.reduce_any(tf.not_equal(mine, 0)), mine, instead))
    return tf.cast(tf.stack(done), tf.float32)


def _independent(column: tf.Tensor, others: Tensors) -> tf.Tensor:
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
