"""The sums that the replicas get for their gradients."""

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.keras.stock import stock_strategy
from tests.strategies.helpers import reducer, strategy_of, variables_of


@cases("dtype", tf.float16, tf.bfloat16, tf.float32)
def test_gradients_keep_their_dtype_and_residuals_are_float32(dtype: tf.DType) -> None:
    strategy = strategy_of(tf_gc.TwoBit(0.5))
    with strategy.scope():
        variable = tf.Variable(tf.zeros((300,), dtype))
    gradients = np.ones((2, 300), dtype.as_numpy_dtype)
    for (total,) in reducer(strategy, [variable])([gradients]):
        assert total.dtype == dtype.as_numpy_dtype
        np.testing.assert_array_equal(total.astype(np.float32), 1.0)
    (residual,) = strategy.compression_state.variables
    assert residual.dtype == tf.float32


def test_small_tensors_and_other_dtypes_are_summed_in_full_precision() -> None:
    params = tf_gc.TwoBit(warm_up=False, bypass_size=100)
    strategy = strategy_of(params)
    dtypes = (np.float32, np.float32, np.float64, np.int64)
    with strategy.scope():
        sizes = zip((100, 99, 200, 200), dtypes, strict=True)
        variables = [tf.Variable(tf.zeros(n, dtype)) for n, dtype in sizes]
    gradients = [
        (9 * np.random.default_rng(1).random((2, *v.shape))).astype(dtype)
        for v, dtype in zip(variables, dtypes, strict=True)
    ]
    for large, *others in reducer(strategy, variables)(gradients):
        assert not np.array_equal(large, gradients[0].sum(axis=0))
        for total, mine in zip(others, gradients[1:], strict=True):
            np.testing.assert_array_equal(total, mine.sum(axis=0))
    assert (strategy.traffic.bypassed_tensors, strategy.traffic.compressed_tensors) == (3, 1)


def test_sparse_and_missing_gradients_keep_their_places() -> None:
    strategy = strategy_of(tf_gc.TwoBit(0.5))
    table, dense, unused = variables_of(strategy, (4, 2), (3,), (5,))

    def replica_step() -> list:
        sparse = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([2]), tf.constant([4, 2]))
        sums = tf_gc.all_reduce_gradients([(sparse, table), (None, unused), (tf.ones(3), dense)])
        assert sums[1] is None
        assert isinstance(sums[0], tf.IndexedSlices)
        return [tf.convert_to_tensor(sums[0]), sums[2]]

    found = tf.function(strategy.run)(replica_step)
    for value, expected in zip(found, ([[0, 0], [0, 0], [2, 2], [0, 0]], [1, 1, 1]), strict=True):
        for component in strategy.experimental_local_results(value):
            np.testing.assert_array_equal(component, expected)


def test_bytes_per_pack_sets_the_size_of_buckets() -> None:
    strategy = strategy_of(tf_gc.TwoBit(0.5))
    run = reducer(strategy, variables_of(strategy, *[(1000,)] * 6), bucket_bytes=8000)
    run([np.ones((2, 1000), "f")] * 6)
    assert len(strategy.schedule.buckets) == 3


def test_only_gradients_are_encoded() -> None:
    """Nor is what their backward pass sums over replicas, as a synchronized normalization's."""
    strategy = strategy_of(tf_gc.TwoBit(0.5))
    (variable,) = variables_of(strategy, (300,))

    def replica_step() -> tf.Tensor:
        values = [tf.ones(300), tf.ones((300, 3))]
        with tf.GradientTape() as tape:
            tape.watch(values)
            first = tf.distribute.get_replica_context().all_reduce("SUM", values)[0]
        gradient = tape.gradient(first, values[0])
        variable.assign_add(first)
        return first * gradient

    @tf.function
    def step() -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(replica_step), axis=None)

    operations = step.get_concrete_function().graph.get_operations()
    assert not any(op.type.startswith("TfGc>") for op in operations)
    np.testing.assert_array_equal(step(), np.full(300, 8.0))


def test_one_replica_or_another_strategy_compresses_nothing() -> None:
    gradients = np.random.default_rng(1).random((2, 300), np.float32)
    single = strategy_of(tf_gc.TwoBit(0.5), 1)
    for strategy, replicas in ((stock_strategy(2), 2), (single, 1)):
        run = reducer(strategy, variables_of(strategy, (300,)))
        for (total,) in run([gradients[:replicas]]):
            np.testing.assert_array_equal(total, gradients[:replicas].sum(axis=0))
    alone = tf.Variable(tf.zeros(3))
    (total,) = tf_gc.all_reduce_gradients([(tf.ones(3), alone)])
    np.testing.assert_array_equal(total, np.ones(3))


def test_wrong_calls_are_refused_and_no_gradient_is_none() -> None:
    strategy = strategy_of()
    with strategy.scope(), pytest.raises(RuntimeError, match="replica context"):
        tf_gc.all_reduce_gradients([])
    (variable,) = variables_of(strategy, (300,))
    assert strategy.run(lambda: tf_gc.all_reduce_gradients([(None, variable)])) == [None]

    def reduce() -> list[tf.Tensor]:
        return tf_gc.all_reduce_gradients([(tf.ones(300), variable)])

    with pytest.raises(ValueError, match="jit_compile=False"):
        tf.function(lambda: strategy.run(reduce), jit_compile=True)()

    @tf.function
    def branch(condition: tf.Tensor) -> None:
        strategy.run(lambda: tf.cond(condition, reduce, lambda: [tf.zeros(300)]))

    with pytest.raises(RuntimeError, match="control flow"):
        branch(tf.constant(True))
