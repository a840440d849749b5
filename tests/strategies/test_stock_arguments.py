"""Arguments and uses of `tf.distribute.MirroredStrategy` that ours has as well."""

import copy
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
    """Counts what it reduces."""

    count = 0

    def reduce_implementation(self, *arguments: Any, **options: Any) -> Any:
        self.count += 1
        return super().reduce_implementation(*arguments, **options)


def test_cross_device_ops_reduce_all_that_is_not_compressed() -> None:
    mine = Counting()
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), cross_device_ops=mine)
    sums = strategy.run(
        lambda: tf.distribute.get_replica_context().all_reduce(SUM, [tf.ones(3), tf.ones(4)])
    )
    for component in strategy.experimental_local_results(sums[0]):
        np.testing.assert_array_equal(component, np.full(3, 2.0))
    assert mine.count == 2


def test_params_in_the_place_of_another_argument_are_an_error() -> None:
    make: Any = tf_gc.CompressedMultiWorkerMirroredStrategy
    for arguments in [({"type": "2bit"},), (None, {"type": "2bit"})]:
        with pytest.raises(TypeError, match="give it by name"):
            make(*arguments)
    for params in [{"type": "2bit"}, tf_gc.Quantized()]:
        with pytest.raises(TypeError, match=r"devices got .*give it by name"):
            tf_gc.CompressedMirroredStrategy(params)  # type: ignore[arg-type]


def test_arguments_of_another_type_are_named() -> None:
    make: Any = tf_gc.CompressedMultiWorkerMirroredStrategy
    with pytest.raises(TypeError, match=r"cluster_resolver must be None or .* got 'a'"):
        make("a")
    with pytest.raises(TypeError, match=r"communication_options must be None or .* got 'a'"):
        make(None, "a")
    with pytest.raises(TypeError, match=r"devices must be a list .* got 'CPU:0'"):
        tf_gc.CompressedMirroredStrategy("CPU:0")  # type: ignore[arg-type]


@pytest.mark.parametrize("pairs", [[tf.ones(3)], [None], [(tf.ones(3),)]])
def test_gradients_without_variables_are_an_error(pairs: Any) -> None:
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2))
    with pytest.raises(TypeError, match=r"must be pairs \(gradient, variable\), got"):
        strategy.run(lambda: tf_gc.all_reduce_gradients(pairs))


def test_gradients_are_compressed_beside_cross_device_ops_of_ones_own() -> None:
    mine = Counting()
    params = tf_gc.TwoBit(2000.0)
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), params, cross_device_ops=mine)
    (sums,) = reducer(strategy, variables_of(strategy, (3000,)))([GRADIENT])[0]
    assert set(sums.tolist()) == {2000.0, 4000.0}
    assert mine.count == 0


@pytest.mark.parametrize("codec", [None, {"type": "none"}])
def test_no_cross_device_ops_are_the_default(codec: Any) -> None:
    default = tf_gc.CompressedMirroredStrategy(cpus(2), codec)
    named = tf_gc.CompressedMirroredStrategy(cpus(2), codec, cross_device_ops=None)
    for strategy in default, named:
        assert isinstance(strategy.extended._cross_device_ops, tf_gc.CompressedAllReduce)


def test_the_error_of_a_wrong_place_names_the_argument() -> None:
    with pytest.raises(TypeError, match=r"second argument.*by name: cross_device_ops="):
        tf_gc.CompressedMirroredStrategy(cpus(2), tf.distribute.ReductionToOneDevice())
    with pytest.raises(TypeError, match=r"cross_device_ops must be.*'nccl'"):
        tf_gc.CompressedMirroredStrategy(cpus(2), cross_device_ops="nccl")


@cases("params", {"type": "2bit", "threshold": 1.0}, None, {"type": "none"}, ids=str)
def test_a_copy_reduces_as_the_original(params: Any) -> None:
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), params)
    before = reducer(strategy, variables_of(strategy, (3000,)))([GRADIENT])
    twin = copy.deepcopy(strategy)
    assert isinstance(twin, tf_gc.CompressedMirroredStrategy)
    assert isinstance(twin.extended._cross_device_ops, tf_gc.CompressedAllReduce)
    assert twin.extended._cross_device_ops is twin.extended.compressed_all_reduce
    assert twin.compression_params == strategy.compression_params
    assert len(twin.compression_state) == 0
    after = reducer(twin, variables_of(twin, (3000,)))([GRADIENT])
    np.testing.assert_array_equal(after, before)


def test_a_graph_for_a_session_is_an_error() -> None:
    with tf.Graph().as_default():
        strategy = tf_gc.CompressedMirroredStrategy(cpus(2))
        (variable,) = variables_of(strategy, (3000,))
        with pytest.raises(RuntimeError, match=r"and not in a graph for a tf.compat.v1"):
            strategy.run(lambda: tf_gc.all_reduce_gradients([(tf.ones([3000]), variable)]))


@cases("params", None, {"type": "2bit", "threshold": 1.0}, ids=str)
def test_a_stock_strategy_takes_our_cross_device_ops(params: Any) -> None:
    expected = tf_gc.CompressedMirroredStrategy(cpus(2), params)
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


def test_bad_arguments_of_our_cross_device_ops_are_named() -> None:
    with pytest.raises(TypeError, match=r"cross_device_ops must be.*'nccl'"):
        tf_gc.CompressedAllReduce(None, "nccl")
    with pytest.raises(ValueError, match="3bit"):
        tf_gc.CompressedAllReduce({"type": "3bit"})
    hierarchical = tf_gc.CompressedAllReduce({"type": "2bit", "plan": "hierarchical"})
    strategy = tf.distribute.MirroredStrategy(cpus(2), cross_device_ops=hierarchical)
    with pytest.raises(ValueError, match="all replicas are on one"):
        reducer(strategy, variables_of(strategy, (3000,)))([GRADIENT])
