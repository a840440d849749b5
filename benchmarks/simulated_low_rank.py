"""Ways to send low rank that tf_gc does not have, under its strategies, to choose its own by."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.network.group import Network, Replica
from tf_gc.params import CompressionParams, Gradient, Quantized, Treatment
from tf_gc.reducers.exchange import Push
from tf_gc.reducers.factors import FACTORS, matrix_of, orthonormal
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
      warm_up: whether the first steps are in full precision.
    """

    rank: int = 4
    most_bits: float = 32
    in_turns: bool = False
    warm_up: bool = True

    def treatments(self) -> tuple[Treatment, ...]:
        way: Way = InTurns(self.rank) if self.in_turns else Factors(self.rank)
        return (Treatment(way, self.warm_up), *self._codes.treatments())

    def treatment_of(self, gradient: Gradient) -> Treatment | None:
        treatment = self._codes.treatment_of(gradient)
        bits = 32 * self.rank * sum(matrix_of(gradient.shape))
        if treatment is None or gradient.sparse or bits > self.most_bits * gradient.elements:
            return treatment
        return self.treatments()[0]

    @property
    def _codes(self) -> Quantized:
        return Quantized(warm_up=self.warm_up)


@dataclasses.dataclass(frozen=True)
class InTurns(Way):
    """Sums P in one step and Q in the next (ACP-SGD), on one host."""

    rank: int

    @property
    def native(self) -> bool:
        return False

    def on(self, network: Network) -> Reducer:
        assert network.hosts == 1
        return _InTurnsReducer(self.rank)

    def push(self) -> Push:
        raise NotImplementedError

    def alternatives(self, network: Network) -> list[tuple[str, str]]:
        return []


class _InTurnsReducer(Reducer):
    plan, wire, choice, keeps_residuals = "all_reduce", "float32", "", True

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self.name = f"factors of rank {rank}, in turns"

    def slot(self, shape: Sequence[int]) -> Slot:
        # Whose turn it is, P and Q.
        return Slot(FACTORS, 1 + self._rank * sum(matrix_of(shape)))

    def reduce(self, bucket: int, replicas: Sequence[Replica], options: Any) -> Reduction:
        first = replicas[0]
        sums = [self._sum(i, replicas) for i in range(len(first.gradients))]
        elements = sum(gradient.shape.num_elements() for gradient in first.gradients)
        encoded = Encoded(
            first.device, first.gradients, first.residuals, lambda: tf.constant(elements, tf.int64)
        )
        longer = sum(max(matrix_of(gradient.shape)) for gradient in first.gradients)
        return Reduction([sums] * len(replicas), encoded, self._rank * longer * 4)

    def _sum(self, i: int, replicas: Sequence[Replica]) -> tf.Tensor:
        shape = replicas[0].gradients[i].shape
        matrix_shape = rows, columns = matrix_of(shape)
        vector = replicas[0].shared[i].read_value()
        p, q = (
            tf.reshape(part, [self._rank, -1])
            for part in tf.split(vector[1:], [self._rank * rows, self._rank * columns])
        )
        p, q = (
            tf.where(tf.reduce_all(tf.equal(part, 0)), orthonormal(tf.zeros_like(part)), part)
            for part in (p, q)
        )
        matrices = [
            tf.reshape(replica.gradients[i] + replica.residuals[i], matrix_shape)
            for replica in replicas
        ]

        def send(sends_p: bool) -> tuple[tf.Tensor, list[tf.Tensor], tf.Tensor]:
            basis = q if sends_p else p
            parts = [tf.matmul(basis, each, transpose_b=sends_p) for each in matrices]
            total = tf.add_n(parts)

            def product(part: tf.Tensor) -> tf.Tensor:
                both = (part, q) if sends_p else (p, part)
                return tf.matmul(*both, transpose_a=True)

            rests = [each - product(part) for each, part in zip(matrices, parts, strict=True)]
            kept = [orthonormal(total), q] if sends_p else [p, orthonormal(total)]
            after = [[0.0 if not sends_p else 1.0], *(tf.reshape(each, [-1]) for each in kept)]
            return product(total), rests, tf.concat(after, 0)

        total, rests, after = tf.cond(vector[0] > 0, lambda: send(False), lambda: send(True))
        for replica, rest in zip(replicas, rests, strict=True):
            replica.residuals[i].assign(tf.reshape(rest, shape))
            replica.shared[i].assign(after)
        return tf.reshape(total, shape)
