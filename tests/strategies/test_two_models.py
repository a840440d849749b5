"""Two models of one strategy, trained at the same time in two threads."""

import sys
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.pool import ThreadPool
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.bits import assert_same_bits
from tests.cases import cases
from tests.keras.compressed import AUTO, FIXED, NONE, compressed_strategy
from tests.strategies.helpers import normal, reducer, variables_of

# To trace the first step takes longer than the others together.
FIRST, OTHERS = range(1), range(1, 100)
# Tensors of the two models have the same names and some the same shapes, so that residuals and
# collectives could be mixed up.
SHAPES = ([(40, 70), (300,)], [(40, 70), (17, 33), (300,)])


@pytest.fixture(autouse=True)
def _threads_change_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def model_of(
    strategy: tf.distribute.Strategy, seed: int
) -> tuple[list[tf.Variable], Callable[[Iterable[int]], list[Any]]]:
    """A model's variables, and a function from the numbers of steps to sums of gradients."""
    variables = variables_of(strategy, *SHAPES[seed])
    reduce = reducer(strategy, variables)
    replicas = strategy.num_replicas_in_sync

    def steps(numbers: Iterable[int]) -> list[Any]:
        return [reduce(normal(SHAPES[seed], 1000 * seed + n, replicas)) for n in numbers]

    return variables, steps


# With None some of the tensors are small, and go to TensorFlow's collectives; with NONE all do.
@cases(
    "params, replicas",
    (None, 3),
    *((AUTO, 2), (FIXED, 3), (NONE, 2)),
    (tf_gc.TwoBit(warm_up=False, bypass_size=0, plan="scatter_gather"), 3),
    ids=str,
)
def test_steps_of_two_models_do_not_meet(
    params: tf_gc.params.CompressionParams | None, replicas: int
) -> None:
    strategies = [compressed_strategy(replicas, params) for _ in range(2)]
    one_by_one, at_once = [[model_of(strategy, seed) for seed in (0, 1)] for strategy in strategies]
    expected = [steps(numbers) for numbers in (FIRST, OTHERS) for _, steps in one_by_one]
    with ThreadPool(2) as pool:  # a time-out: the steps of two models wait for each other
        sums = [
            sums_of_model
            for numbers in (FIRST, OTHERS)
            for sums_of_model in pool.map_async(
                lambda model, numbers=numbers: model[1](numbers), at_once, chunksize=1
            ).get(timeout=600)
        ]
    for mine, theirs in zip(tf.nest.flatten(sums), tf.nest.flatten(expected), strict=True):
        assert theirs.any()
        assert_same_bits(mine, theirs)
    kept = [
        [strategy.compression_state.total(v) for variables, _ in models for v in variables]
        for strategy, models in zip(strategies, (one_by_one, at_once), strict=True)
    ]
    assert any(total is not None for total in kept[0]) == (params is not NONE)
    for mine, theirs in zip(*kept, strict=True):
        np.testing.assert_equal(mine, theirs)
