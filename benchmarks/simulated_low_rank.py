"""Ways to send low rank that tf_gc does not have, under its strategies, to choose its own by."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from simulated_codec import rounded
from tf_gc.reducers.exchange import Push

from tf_gc.network.group import Network, Replica
from tf_gc.params import CompressionParams, Gradient, LeftAlone, Quantized, Treatment
from tf_gc.reducers.factors import FACTORS, matrix_of, orthonormal, product, slot_of
from tf_gc.reducers.low_rank import Factors
from tf_gc.reducers.reducer import Encoded, Reducer, Reduction, Way
from tf_gc.state.seat import Slot


@dataclasses.dataclass(frozen=True)
class SimulatedLowRank(CompressionParams):
    """Arguments of a way to send low rank.

    Attributes:
      rank: the columns of a factor.
      most_bits: a matrix is sent as factors if they take so many bits for each element of the
        matrix, or fewer. Others are sent as by `Quantized()`.
      in_turns: whether a step sends one of the factors (ACP-SGD, Zhang et al. 2023) and not both.
      levels: those of `Simulated` by which factors are sent as codes; none for float32. What codes
        leave of a factor is left of the matrix.
      warm_up: whether the first steps are in full precision.
    """

    rank: int = 4
    most_bits: float = 32
    in_turns: bool = False
    levels: tuple[float, ...] = ()
    warm_up: bool = True

    def treatments(self) -> tuple[Treatment, ...]:
        way: Way = Factors(self.rank)
        if self.in_turns:
            way = OnOneHost(InTurns, self.rank)
        elif self.levels:
            way = OnOneHost(InCodes, self.rank, self.levels)
        return (Treatment(way, self.warm_up), *self._codes.treatments())

    def treatment_of(self, gradient: Gradient) -> Treatment | LeftAlone:
        treatment = self._codes.treatment_of(gradient)
        bits = 32 * self.rank * sum(matrix_of(gradient.shape))
        large = gradient.sparse or bits > self.most_bits * gradient.elements
        if isinstance(treatment, LeftAlone) or large:
            return treatment
        return self.treatments()[0]

    @property
    def _codes(self) -> Quantized:
        return Quantized(warm_up=self.warm_up)


@dataclasses.dataclass(frozen=True)
class OnOneHost(Way):
    """Sums factors by a reducer of this file, which knows the replicas of one host only."""

    reducer: "type[MatrixReducer]"
    rank: int
    levels: tuple[float, ...] = ()

    @property
    def native(self) -> bool:
        return False

    def on(self, network: Network) -> Reducer:
        assert network.hosts == 1
        return self.reducer(self.rank, self.levels)

    def push(self) -> Push:
        raise ValueError("low rank is simulated for sums over replicas, not for parameter servers")

    def alternatives(self, network: Network) -> list[tuple[str, str]]:
        return []


class MatrixReducer(Reducer):
    """Sums one matrix after the other."""

    plan, wire, choice, keeps_residuals = "all_reduce", "float32", "", True

    def __init__(self, rank: int, levels: tuple[float, ...]) -> None:
        self._rank = rank
        self._levels = levels
        self.name = f"{type(self).__name__} of rank {rank}"

    def reduce(self, bucket: int, replicas: Sequence[Replica], options: Any) -> Reduction:
        first = replicas[0]
        sums = [self._sum(i, replicas) for i in range(len(first.gradients))]
        elements = sum(gradient.shape.num_elements() for gradient in first.gradients)
        encoded = Encoded(
            first.device, first.gradients, first.residuals, lambda: tf.constant(elements, tf.int64)
        )
        longer = sum(max(matrix_of(gradient.shape)) for gradient in first.gradients)
        return Reduction([sums] * len(replicas), encoded, self._rank * longer * 4)

    @abc.abstractmethod
    def _sum(self, i: int, replicas: Sequence[Replica]) -> tf.Tensor:
        """Returns the sum of the gradients at a position, and updates residuals and factors."""


class InTurns(MatrixReducer):
    """Sums P in one step and Q in the next (ACP-SGD)."""

    def slot(self, shape: Sequence[int]) -> Slot:
        # Whose turn it is, P and Q.
        return Slot(FACTORS, 1 + self._rank * sum(matrix_of(shape)))

    def _sum(self, i: int, replicas: Sequence[Replica]) -> tf.Tensor:
        shape = replicas[0].gradients[i].shape
        rows, columns = matrix_of(shape)
        vector = replicas[0].shared[i].read_value()
        p, q = (
            tf.reshape(part, [self._rank, -1])
            for part in tf.split(vector[1:], [self._rank * rows, self._rank * columns])
        )
        p, q = (
            tf.where(tf.reduce_all(tf.equal(part, 0)), orthonormal([tf.zeros_like(part)])[0], part)
            for part in (p, q)
        )
        matrices = _matrices(i, replicas)

        def send(sends_p: bool) -> tuple[tf.Tensor, list[tf.Tensor], tf.Tensor]:
            basis = q if sends_p else p
            parts = [tf.matmul(basis, each, transpose_b=sends_p) for each in matrices]
            total = _sum_of(parts)

            def times_other(part: tf.Tensor) -> tf.Tensor:
                return product(part, q) if sends_p else product(p, part)

            rests = [each - times_other(part) for each, part in zip(matrices, parts, strict=True)]
            (next_basis,) = orthonormal([total])
            kept = [next_basis, q] if sends_p else [p, next_basis]
            after = [[0.0 if not sends_p else 1.0], *(tf.reshape(each, [-1]) for each in kept)]
            return times_other(total), rests, tf.concat(after, 0)

        total, rests, after = tf.cond(vector[0] > 0, lambda: send(False), lambda: send(True))
        for replica, rest in zip(replicas, rests, strict=True):
            replica.residuals[i].assign(tf.reshape(rest, shape))
            replica.shared[i].assign(after)
        return tf.reshape(total, shape)


class InCodes(MatrixReducer):
    """Sums what codes stand for of P, and then of Q."""

    def slot(self, shape: Sequence[int]) -> Slot:
        return slot_of(shape, self._rank)

    def _sum(self, i: int, replicas: Sequence[Replica]) -> tf.Tensor:
        shape = replicas[0].gradients[i].shape
        q = tf.reshape(replicas[0].shared[i].read_value(), [self._rank, -1])
        (start,) = orthonormal([tf.zeros_like(q)])
        q = tf.where(tf.reduce_all(tf.equal(q, 0)), start, q)
        matrices = _matrices(i, replicas)
        parts = [rounded(tf.matmul(q, each, transpose_b=True), self._levels) for each in matrices]
        (p,) = orthonormal([_sum_of(parts)])
        parts = [rounded(tf.matmul(p, each), self._levels) for each in matrices]
        total = _sum_of(parts)
        (after,) = orthonormal([total])
        for replica, matrix, part in zip(replicas, matrices, parts, strict=True):
            replica.residuals[i].assign(tf.reshape(matrix - product(p, part), shape))
            replica.shared[i].assign(tf.reshape(after, [-1]))
        return tf.reshape(product(p, total), shape)


def _matrices(i: int, replicas: Sequence[Replica]) -> list[tf.Tensor]:
    """Returns for each replica the matrix at a position, gradient plus residual."""
    shape = matrix_of(replicas[0].gradients[i].shape)
    return [tf.reshape(each.gradients[i] + each.residuals[i], shape) for each in replicas]


def _sum_of(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Adds in one order: `tf.add_n` begins with an input that nothing else uses any more."""
    return tf.reduce_sum(tf.stack(parts), axis=0)
