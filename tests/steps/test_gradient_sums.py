"""The sums that the replicas get for their gradients."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.keras.stock import stock_strategy
from tests.strategies.helpers import cpus, reducer, variables_of

GOLDEN = Path(__file__).parents[1] / "golden" / "mxnet_1_9_1_two_bit.npz"
EVERY_TENSOR: dict[str, Any] = {"warm_up": False, "bypass_size": 0}


@cases(
    "case, eager",
    ("normal_100x100", False),
    *(("uniform_2x3", True), ("ramp_4x4", False), ("normal_37", True)),
)
def test_sums_are_those_of_mxnet(case: str, eager: bool) -> None:
    with np.load(GOLDEN) as golden:
        gradients = golden[f"{case}__grads"]
        expected = golden[f"{case}__sums"]
        threshold = float(golden[f"{case}__threshold"])
    strategy = tf_gc.CompressedMirroredStrategy(
        cpus(gradients.shape[1]), {"type": "2bit", "threshold": threshold}
    )
    run = reducer(strategy, variables_of(strategy, gradients.shape[2:]), eager)
    for step, sums in zip(gradients, expected, strict=True):
        for (total,) in run([step]):
            np.testing.assert_array_equal(total, sums)


@cases(
    "params, replicas",
    (tf_gc.Quantized(**EVERY_TENSOR), 3),
    (tf_gc.TwoBit(0.01), 4),
    (tf_gc.OneBit(**EVERY_TENSOR), 2),
    ids=str,
)
def test_sent_plus_residuals_is_the_sum_of_the_gradients(
    params: tf_gc.params.CompressionParams, replicas: int
) -> None:
    shapes = [(7, 100), (1,), (129,)]
    strategy = tf_gc.CompressedMirroredStrategy(cpus(replicas), params)
    run = reducer(strategy, variables_of(strategy, *shapes))
    random = np.random.default_rng(1)
    given = [np.zeros(shape) for shape in shapes]
    sent = [np.zeros(shape) for shape in shapes]
    for _ in range(25):
        gradients = [
            random.normal(scale=0.1, size=(replicas, *shape)).astype(np.float32) for shape in shapes
        ]
        sums = run(gradients)
        for other in sums[1:]:
            for mine, theirs in zip(sums[0], other, strict=True):
                np.testing.assert_array_equal(mine, theirs)
        for i in range(len(shapes)):
            given[i] += gradients[i].sum(axis=0, dtype=np.float64)
            sent[i] += sums[0][i]
    left = [residual.numpy() for residual in strategy.compression_state.variables]
    assert sorted(r.shape for r in left) == sorted(shapes)
    for shape, total, applied in zip(shapes, given, sent, strict=True):
        residual = next(r for r in left if r.shape == shape)
        np.testing.assert_allclose(applied + residual, total, rtol=1e-5, atol=2e-5)


def test_without_compression_sums_are_the_stock_strategys_bits() -> None:
    shapes = [(300, 11), (5,), ()]
    random = np.random.default_rng(1)
    gradients = [random.normal(size=(4, *shape)).astype(np.float32) for shape in shapes]
    ours = tf_gc.CompressedMirroredStrategy(cpus(4), {"type": "none"})
    stock = stock_strategy(4)
    for mine, theirs in zip(
        reducer(ours, variables_of(ours, *shapes))(gradients),
        reducer(stock, variables_of(stock, *shapes))(gradients),
        strict=True,
    ):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
    assert len(ours.compression_state) == 0
    assert ours.traffic is None


@cases("dtype", tf.float16, tf.bfloat16, tf.float32)
def test_gradients_keep_their_dtype_and_residuals_are_float32(dtype: tf.DType) -> None:
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), tf_gc.TwoBit(0.5))
    with strategy.scope():
        variable = tf.Variable(tf.zeros((300,), dtype))
    gradients = np.ones((2, 300), dtype.as_numpy_dtype)
    for (total,) in reducer(strategy, [variable])([gradients]):
        assert total.dtype == dtype.as_numpy_dtype
        np.testing.assert_array_equal(total.astype(np.float32), 1.0)
    (residual,) = strategy.compression_state.variables
    assert residual.dtype == tf.float32


@cases(
    "params, bad",
    (tf_gc.Quantized(**EVERY_TENSOR), np.inf),
    (tf_gc.TwoBit(0.5), np.nan),
    (tf_gc.OneBit(0.5), 3e38),
    ids=str,
)
def test_a_bad_number_shows_on_all_replicas_once_and_poisons_nothing(
    params: tf_gc.params.CompressionParams, bad: float
) -> None:
    strategy = tf_gc.CompressedMirroredStrategy(cpus(3), params)
    run = reducer(strategy, variables_of(strategy, (300,)))
    gradients = np.full((3, 300), 0.6, np.float32)
    run([gradients])
    gradients[1, 77] = bad
    # One bit has no code for it, and marks the block.
    marked = slice(0, 128) if isinstance(params, tf_gc.OneBit) else 77
    for (total,) in run([gradients]):
        assert np.isnan(total[marked]).all()
        assert np.isfinite(np.delete(total, marked)).all()
    gradients[1, 77] = 0.6
    for (total,) in run([gradients]):
        assert np.isfinite(total).all()
        assert total[77] != 0


def test_small_tensors_and_other_dtypes_are_summed_in_full_precision() -> None:
    params = tf_gc.TwoBit(warm_up=False, bypass_size=100)
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), params)
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
    assert strategy.traffic is not None
    assert strategy.traffic.bypassed_tensors == 3
    assert strategy.traffic.compressed_tensors == 1


def test_sparse_and_missing_gradients_keep_their_places() -> None:
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), tf_gc.TwoBit(0.5))
    table, dense, unused = variables_of(strategy, (4, 2), (3,), (5,))

    @tf.function
    def step() -> list:
        def replica_step() -> list:
            sparse = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([2]), tf.constant([4, 2]))
            sums = tf_gc.all_reduce_gradients(
                [(sparse, table), (None, unused), (tf.ones(3), dense)]
            )
            assert sums[1] is None
            assert isinstance(sums[0], tf.IndexedSlices)
            return [tf.convert_to_tensor(sums[0]), sums[2]]

        return strategy.run(replica_step)

    for value, expected in zip(step(), ([[0, 0], [0, 0], [2, 2], [0, 0]], [1, 1, 1]), strict=True):
        for component in strategy.experimental_local_results(value):
            np.testing.assert_array_equal(component, expected)


def test_bytes_per_pack_sets_the_size_of_buckets() -> None:
    # The stock options of MirroredStrategy cannot be set by a user, a call's can.
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), tf_gc.TwoBit(0.5))
    shapes = [(1000,)] * 6
    variables = variables_of(strategy, *shapes)

    @tf.function
    def step() -> None:
        def merge(strategy: tf.distribute.Strategy, values: list) -> None:
            strategy.extended.batch_reduce_to(
                tf.distribute.ReduceOp.SUM,
                list(zip(values, variables, strict=True)),
                tf.distribute.experimental.CommunicationOptions(bytes_per_pack=8000),
            )

        def replica_step() -> None:
            context = tf.distribute.get_replica_context()
            context.merge_call(merge, args=([tf.ones(s) for s in shapes],))

        strategy.run(replica_step)

    operations = step.get_concrete_function().graph.get_operations()
    assert sum(op.type == "TfGc>Encode" for op in operations) == 3 * 2


def test_only_gradients_are_encoded() -> None:
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), tf_gc.TwoBit(0.5))
    (variable,) = variables_of(strategy, (300,))

    @tf.function
    def step() -> tf.Tensor:
        def replica_step() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            values = [tf.ones(300), tf.ones((300, 3))]
            first = context.all_reduce(tf.distribute.ReduceOp.SUM, values)[0]
            variable.assign_add(first)
            return first

        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica_step), axis=None)

    operations = step.get_concrete_function().graph.get_operations()
    assert not any(op.type.startswith("TfGc>") for op in operations)
    np.testing.assert_array_equal(step(), np.full(300, 4.0))


def test_one_replica_or_another_strategy_compresses_nothing() -> None:
    gradients = np.random.default_rng(1).random((2, 300), np.float32)
    single = tf_gc.CompressedMirroredStrategy(["CPU:0"], tf_gc.TwoBit(0.5))
    for strategy, replicas in ((stock_strategy(2), 2), (single, 1)):
        run = reducer(strategy, variables_of(strategy, (300,)))
        for (total,) in run([gradients[:replicas]]):
            np.testing.assert_array_equal(total, gradients[:replicas].sum(axis=0))
    alone = tf.Variable(tf.zeros(3))
    (total,) = tf_gc.all_reduce_gradients([(tf.ones(3), alone)])
    np.testing.assert_array_equal(total, np.ones(3))


def test_wrong_calls_are_refused_and_no_gradient_is_none() -> None:
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2))
    with strategy.scope(), pytest.raises(RuntimeError, match="replica context"):
        tf_gc.all_reduce_gradients([])
    (variable,) = variables_of(strategy, (300,))
    assert strategy.run(lambda: tf_gc.all_reduce_gradients([(None, variable)])) == [None]

    @tf.function(jit_compile=True)
    def step() -> None:
        strategy.run(lambda: tf_gc.all_reduce_gradients([(tf.ones(300), variable)]))

    with pytest.raises(ValueError, match="jit_compile=False"):
        step()
