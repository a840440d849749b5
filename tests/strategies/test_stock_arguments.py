"""Arguments and uses of `tf.distribute.MirroredStrategy` that ours has as well."""

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.strategies.helpers import cpus, reducer, variables_of

SUM = tf.distribute.ReduceOp.SUM
GRADIENT = np.arange(2 * 3000, dtype=np.float32).reshape(2, 3000)


class Counting(tf.distribute.ReductionToOneDevice):
    count = 0

    def reduce_implementation(self, *arguments: Any, **options: Any) -> Any:
        self.count += 1
        return super().reduce_implementation(*arguments, **options)


MIRRORED: Any = tf_gc.CompressedMirroredStrategy
WORKERS: Any = tf_gc.CompressedMultiWorkerMirroredStrategy
ON_TWO = functools.partial(MIRRORED, cpus(2))


def reduce(strategy: tf.distribute.Strategy) -> Any:
    return reducer(strategy, variables_of(strategy, (3000,)))([GRADIENT])


def sum_pairs(*pairs: Any) -> None:
    strategy = ON_TWO()
    strategy.run(lambda: tf_gc.all_reduce_gradients(pairs))


def use_in_stock(params: Any) -> None:
    ours = tf_gc.CompressedAllReduce(params)
    reduce(tf.distribute.MirroredStrategy(cpus(2), cross_device_ops=ours))


def reduce_in_a_graph() -> None:
    with tf.Graph().as_default():
        strategy = ON_TWO()
        (variable,) = variables_of(strategy, (3000,))
        strategy.run(lambda: tf_gc.all_reduce_gradients([(tf.ones([3000]), variable)]))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: WORKERS({"type": "2bit"}), TypeError, "resolver got .*give it by name"),
        (lambda: WORKERS(None, {"type": "2bit"}), TypeError, "options got .*give it by name"),
        (lambda: MIRRORED({"type": "2bit"}), TypeError, "devices got .*give it by name"),
        (lambda: MIRRORED(tf_gc.Quantized()), TypeError, "devices got .*give it by name"),
        (lambda: MIRRORED(clip_after_sum=None), ValueError, "_sum must be True or False, got None"),
        (lambda: WORKERS(average_layer_state=1), ValueError, "_state must be None, .* got 1"),
        (lambda: WORKERS("a"), TypeError, "cluster_resolver must be None or .* got 'a'"),
        (lambda: WORKERS(None, "a"), TypeError, "_options must be None or .* got 'a'"),
        (lambda: MIRRORED("CPU:0"), TypeError, "devices must be a list .* got 'CPU:0'"),
        (lambda: ON_TWO(Counting()), TypeError, "second argument.*by name: cross_device_ops="),
        (lambda: ON_TWO(cross_device_ops="nccl"), TypeError, "cross_device_ops must be.*'nccl'"),
        (lambda: sum_pairs(tf.ones(3)), TypeError, r"must be pairs \(gradient, variable\), got"),
        (lambda: sum_pairs(None), TypeError, r"must be pairs \(gradient, variable\), got"),
        (lambda: sum_pairs((tf.ones(3),)), TypeError, r"must be pairs \(gradient, variable\), got"),
        (lambda: tf_gc.CompressedAllReduce(None, "nccl"), TypeError, "device_ops must be.*'nccl'"),
        (lambda: tf_gc.CompressedAllReduce({"type": "3bit"}), ValueError, "3bit"),
        (
            lambda: use_in_stock({"type": "2bit", "plan": "hierarchical"}),
            *(ValueError, "all replicas are on one"),
        ),
        (reduce_in_a_graph, RuntimeError, "and not in a graph for a tf.compat.v1"),
    ],
)
def test_wrong_uses_are_named(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


def test_cross_device_ops_reduce_all_that_is_not_compressed() -> None:
    mine = Counting()
    strategy = ON_TWO(tf_gc.TwoBit(2000.0), cross_device_ops=mine)
    (sums,) = reduce(strategy)[0]
    assert set(sums.tolist()) == {2000.0, 4000.0}
    assert mine.count == 0
    others = strategy.run(
        lambda: tf.distribute.get_replica_context().all_reduce(SUM, [tf.ones(3), tf.ones(4)])
    )
    for component in strategy.experimental_local_results(others[0]):
        np.testing.assert_array_equal(component, np.full(3, 2.0))
    assert mine.count == 2


@cases("params", {"type": "2bit", "threshold": 1.0}, None, {"type": "none"}, ids=str)
def test_a_copy_reduces_as_the_original(params: Any) -> None:
    strategy = ON_TWO(params)
    before = reduce(strategy)
    twin = copy.deepcopy(strategy)
    assert isinstance(twin, tf_gc.CompressedMirroredStrategy)
    assert isinstance(twin.extended._cross_device_ops, tf_gc.CompressedAllReduce)
    assert twin.extended._cross_device_ops is twin.extended.compressed_all_reduce
    assert twin.compression_params == strategy.compression_params
    assert len(twin.compression_state) == 0
    np.testing.assert_array_equal(reduce(twin), before)


@cases("params", None, {"type": "2bit", "threshold": 1.0}, ids=str)
def test_a_stock_strategy_takes_our_cross_device_ops(params: Any) -> None:
    expected = ON_TWO(params)
    ours = tf_gc.CompressedAllReduce(params, Counting())
    stock = tf.distribute.MirroredStrategy(cpus(2), cross_device_ops=ours)
    runs = [reducer(strategy, variables_of(strategy, (3000,))) for strategy in (stock, expected)]
    for _ in range(20):  # beyond the end of the warm-up
        mine, theirs = (run([GRADIENT]) for run in runs)
        np.testing.assert_array_equal(mine, theirs)
    assert ours.traffic == expected.traffic is not None
    assert str(ours.schedule) == str(expected.schedule) != "None"
    for mine, theirs in zip(
        ours.compression_state.variables, expected.compression_state.variables, strict=True
    ):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())
