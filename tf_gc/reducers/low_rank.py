"""The reducer of low rank: sums the two thin factors of each matrix instead of the matrix."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.network.group import Group, Network, Replica, on_devices, once_per_host
from tf_gc.reducers.factors import FACTORS, Matrices, matrix_of
from tf_gc.reducers.reducer import Push, Reducer, Reduction, Spec
from tf_gc.state.registry import Slot


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
    keeps_residuals = True

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
