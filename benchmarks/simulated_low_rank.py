"""Ways to send low rank that tf_gc does not have, under its strategies, to choose its own by."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.params import CompressionParams, Gradient, Quantized, Treatment
from tf_gc.reduction.exchange import Push
from tf_gc.reduction.factors import Layout, matrix_of, orthonormal, slot_of
from tf_gc.reduction.group import LocalNetwork, Network, Replica
from tf_gc.reduction.low_rank import Factors
from tf_gc.reduction.reducer import Encoded, Reducer, Reduction, Way
from tf_gc.state.seat import Slot


@dataclasses.dataclass(frozen=True)
class SimulatedLowRank(CompressionParams):
    """Arguments of a way to send low rank.

    Attributes:
      rank: the columns of a factor.
      most_bits: a matrix is sent as factors if the longer one takes so many bits for each element
        of the matrix, or fewer. Others are sent as by `Quantized()`.
      both: whether each step sends both factors (PowerSGD, Vogels et al. 2019) and not one.
      warm_up: whether the first steps are in full precision.
    """

    rank: int = 4
    most_bits: float = 16
    both: bool = False
    warm_up: bool = True

    def treatments(self) -> tuple[Treatment, ...]:
        way: Way = PowerSgd(self.rank) if self.both else Factors(self.rank)
        return (Treatment(way, self.warm_up), *self._codes.treatments())

    def treatment_of(self, gradient: Gradient) -> Treatment | None:
        treatment = self._codes.treatment_of(gradient)
        bits = 32 * self.rank * max(matrix_of(gradient.shape))
        if treatment is None or gradient.sparse or bits > self.most_bits * gradient.elements:
            return treatment
        return self.treatments()[0]

    @property
    def _codes(self) -> Quantized:
        return Quantized(warm_up=self.warm_up)


@dataclasses.dataclass(frozen=True)
class PowerSgd(Way):
    """Sums both factors of a matrix, P and then Q, in each step, on one host."""

    rank: int

    @property
    def native(self) -> bool:
        return False

    def on(self, network: Network) -> Reducer:
        assert isinstance(network, LocalNetwork) or network.hosts == 1
        return _PowerSgdReducer(self.rank)

    def push(self) -> Push:
        raise NotImplementedError

    def alternatives(self, network: Network) -> list[tuple[str, str]]:
        return []


class _PowerSgdReducer(Reducer):
    plan, wire, choice, keeps_residuals = "all_reduce", "float32", "", True

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self.name = f"PowerSGD of rank {rank}"

    def slot(self, shape: Sequence[int]) -> Slot:
        return slot_of(shape, self._rank)

    def reduce(self, bucket: int, replicas: Sequence[Replica], options: Any) -> Reduction:
        first = replicas[0]
        sums = [self._sum(i, replicas) for i in range(len(first.gradients))]
        layout = Layout([gradient.shape for gradient in first.gradients], self._rank)
        elements = sum(gradient.shape.num_elements() for gradient in first.gradients)
        encoded = Encoded(
            first.device, first.gradients, first.residuals, lambda: tf.constant(elements, tf.int64)
        )
        return Reduction([sums] * len(replicas), encoded, 2 * layout.size * 4)

    def _sum(self, i: int, replicas: Sequence[Replica]) -> tf.Tensor:
        shape = replicas[0].gradients[i].shape
        rows, columns = matrix_of(shape)
        vector = replicas[0].shared[i].read_value()
        q = tf.reshape(vector[-self._rank * columns :], [self._rank, columns])
        q = tf.where(tf.reduce_all(tf.equal(q, 0)), orthonormal(tf.zeros_like(q)), q)
        matrices = [
            tf.reshape(replica.gradients[i] + replica.residuals[i], [rows, columns])
            for replica in replicas
        ]
        p = orthonormal(tf.add_n([tf.matmul(q, each, transpose_b=True) for each in matrices]))
        parts = [tf.matmul(p, each) for each in matrices]
        total = tf.add_n(parts)
        for replica, matrix, part in zip(replicas, matrices, parts, strict=True):
            rest = matrix - tf.matmul(p, part, transpose_a=True)
            replica.residuals[i].assign(tf.reshape(rest, shape))
            kept = [[0.0], tf.reshape(p, [-1]), tf.reshape(total, [-1])]
            replica.shared[i].assign(tf.concat(kept, 0))
        return tf.reshape(tf.matmul(p, total, transpose_a=True), shape)
