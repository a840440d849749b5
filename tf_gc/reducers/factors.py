"""The reducer of low rank: a matrix is sent as the product of two thin factors (PowerSGD).

PowerSGD (Vogels et al. 2019) approximates a matrix M, gradient plus residual, by P Qᵀ, with factors
P [rows, rank] and Q [columns, rank]. With the Q of the step before, P = M Q is summed up over the
replicas, and its columns are made orthonormal. With that P, Q = Mᵀ P is summed up. The step's sum
is P Qᵀ, and a replica's new residual is M - P Qᵀ with its own Q. The steps together are a power
iteration, by which Q follows what is largest in the gradients.

Kept for a matrix is Q, alike on all replicas, its orthonormal columns one after the other, float32
[rank * columns].
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tf_gc import ops
from tf_gc.network.group import Group, Network, Replica, is_cpu, on_devices, once_per_host
from tf_gc.reducers.reducer import Push, Reducer, Reduction, Spec
from tf_gc.state.registry import Slot

# The name of the slot of factors; its size depends on the variable.
FACTORS = "factors"

# As in custom_ops/lib/low_rank/factors.cc.
_INDEPENDENT = 1e-6

Tensors: TypeAlias = Sequence[tf.Tensor]


def matrix_of(shape: Sequence[int]) -> tuple[int, int]:
    """Returns rows and columns of the matrix that a tensor is sent as.

    The first axes are its rows and the last ones its columns, so that the sum of the two numbers is
    smallest: a convolution has a column for each output, and attention keeps its heads together.
    """
    splits = [(math.prod(shape[:i]), math.prod(shape[i:])) for i in range(1, len(shape))]
    return min(splits, key=sum, default=(math.prod(shape), 1))


@dataclasses.dataclass(frozen=True)
class Factors(Spec):
    """Sums a matrix as its two factors, of `rank` columns, one after the other."""

    rank: int
    warm_up: bool = False

    in_one_bucket = True

    def on(self, network: Network) -> "FactorsReducer":
        return FactorsReducer(self.rank, network.group(network.devices))

    def push(self) -> Push:
        raise ValueError(
            "tf_gc.LowRank is for sums over replicas, which all have the same factors; under "
            "parameter servers no two workers have: use tf_gc.Quantized() there"
        )


class FactorsReducer(Reducer):
    """Encodes factors of a bucket's matrices, has the network sum them, and multiplies."""

    plan = "all_reduce"
    wire = "float32"
    residual_dtype = tf.float32

    def __init__(self, rank: int, group: Group) -> None:
        self._rank = rank
        self._group = group
        self.name = f"factors of rank {rank}"

    def slot(self, shape: Sequence[int]) -> Slot:
        return Slot(FACTORS, self._rank * matrix_of(shape)[1])

    def reduce(self, bucket: int, replicas: Sequence[Replica], options: Any) -> Reduction:
        channel = self._group.open(bucket, options)
        first = replicas[0]
        matrices = on_devices(replicas, lambda replica: Matrices(replica, self._rank))
        projected = on_devices(replicas, lambda _, mine: mine.project(), matrices)
        totals = channel.all_reduce(projected)
        encoded = on_devices(replicas, lambda _, mine, p: mine.encode(p), matrices, totals)
        messages, bases = zip(*encoded, strict=True)
        totals = channel.all_reduce(messages)
        decoded = once_per_host(
            replicas, lambda _, mine, q, p: mine.decode(q, p), matrices, totals, bases
        )
        for replica, (_, factors) in zip(replicas, decoded, strict=True):
            with tf.device(replica.device):
                for variable, value in zip(replica.shared, factors, strict=True):
                    variable.assign(value, read_value=False)
        sums = [mine for mine, _ in decoded]
        elements = sum(gradient.shape.num_elements() for gradient in first.gradients)
        count_sent = functools.partial(tf.constant, elements, tf.int64)
        return Reduction(sums, first, count_sent, channel.sent_bytes, channel.most_bytes)


class Matrices:
    """The matrices of a bucket on one replica: by native ops on CPUs, by TensorFlow's on GPUs."""

    def __init__(self, replica: Replica, rank: int) -> None:
        self._native = is_cpu(replica.device)
        self._gradients = replica.gradients
        self._residuals = replica.residuals
        self._factors = [variable.read_value() for variable in replica.shared]
        self._rank = rank
        self._shapes = [matrix_of(gradient.shape) for gradient in self._gradients]
        self._rows = [rows for rows, _ in self._shapes]

    def project(self) -> tf.Tensor:
        """Returns what `tf_gc.ops.project_factors` does."""
        if self._native:
            arguments = (self._gradients, self._residuals, self._factors)
            return ops.project_factors(*arguments, self._rows, self._rank)
        parts = []
        before = [tf.reshape(vector, [self._rank, -1]) for vector in self._factors]
        starts = orthonormal([tf.zeros(q.shape) for q in before])
        for matrix, q, start in zip(self._matrices(), before, starts, strict=True):
            q = tf.where(tf.reduce_all(tf.equal(q, 0)), start, q)
            p = tf.matmul(q, matrix, transpose_b=True)
            finite = tf.reduce_all(tf.math.is_finite(p), 0)
            parts.append(tf.reshape(tf.where(finite, p, 0.0), [-1]))
        return tf.concat(parts, 0)

    def encode(self, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns what `tf_gc.ops.encode_factors` does, given the sum of all `project`."""
        if self._native:
            arguments = (self._gradients, self._residuals, total)
            return ops.encode_factors(*arguments, self._rows, self._rank)
        total = tf.where(tf.math.is_finite(total), total, 0.0)
        sent = []
        bases = orthonormal(self._split(total, 0))
        for matrix, residual, p in zip(self._matrices(), self._residuals, bases, strict=True):
            q = tf.matmul(p, matrix)
            finite = tf.reduce_all(tf.math.is_finite(q), 0)
            rest = matrix - product(p, q)
            rest = tf.where(tf.abs(rest) < ops.max_magnitude(), rest, 0.0)
            kept = tf.where(finite, rest, tf.reshape(residual, matrix.shape))
            residual.assign(tf.reshape(kept, residual.shape), read_value=False)
            sent.append(tf.reshape(tf.where(finite, q, math.nan), [-1]))
        return tf.concat(sent, 0), tf.concat([tf.reshape(p, [-1]) for p in bases], 0)

    def decode(self, total: tf.Tensor, basis: tf.Tensor) -> tuple[Tensors, Tensors]:
        """Returns what `tf_gc.ops.decode_factors` does, given the sum of all Q, and P."""
        if self._native:
            arguments = (total, basis, self._factors, self._gradients)
            return ops.decode_factors(*arguments, self._rows, self._rank)
        sums, after = [], []
        columns = self._split(total, 1)
        for gradient, before, p, q, next_q in zip(
            self._gradients,
            self._factors,
            self._split(basis, 0),
            columns,
            orthonormal(columns),
            strict=True,
        ):
            sums.append(tf.cast(tf.reshape(product(p, q), gradient.shape), gradient.dtype))
            finite = tf.reduce_all(tf.math.is_finite(q))
            after.append(tf.where(finite, tf.reshape(next_q, [-1]), before))
        return sums, after

    def _matrices(self) -> list[tf.Tensor]:
        return [
            tf.reshape(tf.cast(gradient, tf.float32) + residual, shape)
            for gradient, residual, shape in zip(
                self._gradients, self._residuals, self._shapes, strict=True
            )
        ]

    def _split(self, vector: tf.Tensor, axis: int) -> list[tf.Tensor]:
        sizes = [self._rank * shape[axis] for shape in self._shapes]
        return [tf.reshape(part, [self._rank, -1]) for part in tf.split(vector, sizes)]


def product(p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
    """Returns P Qᵀ, given the columns of P and Q, float32 [rank, n]."""
    # On GPUs matmul rounds its arguments to TensorFloat-32 unless a program forbids it. Then what
    # is sent and what is taken from the residuals would differ.
    terms = [p[k, :, tf.newaxis] * q[k] for k in range(p.shape[0])]
    return functools.reduce(tf.add, terms)


def orthonormal(factors: Tensors) -> list[tf.Tensor]:
    """Returns orthonormal columns of each factor, as `MakeOrthonormal` in the native library does.

    A factor is float32 [rank, n] with its own n. One after the other they would be hundreds of
    small kernels. So all are done together, with zeros after the shorter columns.
    """
    rank = factors[0].shape[0]
    lengths = [factor.shape[1] for factor in factors]
    longest = max(lengths)

    def candidates_of(factor: tf.Tensor, n: int) -> tf.Tensor:
        """For each k column k, and what takes its place if it depends on those before."""
        both = tf.stack([tf.cast(factor, tf.float64), _noise(rank, n)], 1)
        return tf.pad(both, [[0, 0], [0, 0], [0, longest - n]])

    candidates = tf.stack(list(map(candidates_of, factors, lengths)))
    done = tf.zeros([len(factors), 0, longest], tf.float64)
    for k in range(rank):
        mine, instead = tf.unstack(_independent(candidates[:, k], done), axis=1)
        depends = tf.reduce_all(tf.equal(mine, 0), 1, keepdims=True)
        column = tf.where(depends, instead, mine)
        done = tf.concat([done, column[:, tf.newaxis]], 1)
    columns = tf.cast(done, tf.float32)
    return [columns[i, :, :n] for i, n in enumerate(lengths)]


def _independent(columns: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Returns what is orthogonal to others, of norm 1; zeros if nothing but rounding is left."""
    size = tf.norm(columns, axis=2, keepdims=True)
    if others.shape[1]:
        for _ in range(2):  # what one round leaves, the second one takes out
            parts = tf.matmul(columns, others, transpose_b=True)
            columns -= tf.matmul(parts, others)
    norm = tf.norm(columns, axis=2, keepdims=True)
    return tf.where(norm > _INDEPENDENT * size, tf.math.divide_no_nan(columns, norm), 0.0)


def _noise(rank: int, n: int) -> np.ndarray:
    """Returns float64 numbers in [-1, 1) that look random, and are the same everywhere."""
    x = np.arange(1, rank * n + 1, dtype=np.uint32) * np.uint32(2654435769)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(2246822519)
    x = x ^ (x >> np.uint32(13))
    return (x.reshape(rank, n) - 2.0**31) / 2.0**31
