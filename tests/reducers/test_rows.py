"""Sparse gradients on one host: what is sent, what is kept, what is refused."""

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.strategies.helpers import cpus, strategy_of, variables_of
from tf_gc.params import Gradient

SHAPE = (200, 24)
COLD = {"type": "quantized", "warm_up": False, "sparse": True}

Rows = tuple[np.ndarray, Any]
Step = Callable[[Sequence[Rows]], list[tf.IndexedSlices]]


def made(
    params: Any, replicas: int = 2, dtype: Any = tf.float32, eager: bool = False, restore: str = ""
) -> tuple[Any, tf.Variable, Step]:
    """Returns a strategy, its table, and what sums the rows of each replica for each replica."""
    strategy = params
    if not isinstance(params, tf.distribute.Strategy):
        strategy = strategy_of(params, replicas)
    if restore:
        tf.train.Checkpoint(state=strategy.compression_state).restore(restore)
    with strategy.scope():
        table = tf.Variable(tf.zeros(SHAPE, dtype), name="table")

    def replica_step(rows: Any) -> Any:
        values, indices = rows
        gradient = tf.IndexedSlices(values, indices, tf.constant(SHAPE))
        return tf_gc.all_reduce_gradients([(gradient, table)])[0]

    def step(rows: Sequence[Any]) -> Any:
        of_replicas = strategy.experimental_distribute_values_from_function(
            lambda context: rows[context.replica_id_in_sync_group]
        )
        return strategy.run(replica_step, args=(of_replicas,))

    traced = step if eager else tf.function(step, reduce_retracing=True)

    def run(rows: Sequence[Rows]) -> list[tf.IndexedSlices]:
        total = traced([tuple(map(tf.constant, mine)) for mine in rows])
        return list(strategy.experimental_local_results(total))

    return strategy, table, run


def rows_of(seed: int, counts: Sequence[int], dtype: Any = np.float32) -> list[Rows]:
    rng = np.random.default_rng(seed)
    return [
        (rng.normal(size=(n, SHAPE[1])).astype(dtype), rng.integers(0, 50, n).astype(np.int32))
        for n in counts
    ]


def dense(rows: Sequence[Rows]) -> np.ndarray:
    total = np.zeros(SHAPE)
    for values, indices in rows:
        np.add.at(total, indices, values.astype(np.float64))
    return total


def as_dense(total: tf.IndexedSlices) -> np.ndarray:
    return dense([(total.values.numpy(), total.indices.numpy())])


def given_and_sent(step: Step, *steps: list[Rows]) -> np.ndarray:
    """Runs steps; returns [2, ...], the sum of all gradients and the sum of what was sent."""
    return np.sum([(dense(rows), as_dense(step(rows)[0])) for rows in steps], axis=0)


@cases(
    "dtype, eager, kept",
    (np.float32, False, "int8"),  # then bfloat16
    (np.float32, False, "float32"),
    (np.float16, True, "float32"),
    (ml_dtypes.bfloat16, False, "float32"),
)
def test_sent_plus_kept_is_what_was_given(dtype: Any, eager: bool, kept: str) -> None:
    strategy, table, step = made({**COLD, "residual": kept}, 3, dtype, eager)
    given, sent = np.zeros(SHAPE), np.zeros(SHAPE)
    for number, counts in enumerate([(9, 0, 4), (0, 0, 0), (30, 1, 2), (5, 5, 5)]):
        rows = rows_of(number, counts, dtype)
        totals = step(rows)
        for total in totals:
            assert (total.dtype, total.indices.dtype) == (dtype, tf.int32)
            assert (np.diff(total.indices.numpy()) > 0).all()
            np.testing.assert_array_equal(total.values, totals[0].values)
            np.testing.assert_array_equal(total.dense_shape, SHAPE)
        given += dense(rows)
        sent += as_dense(totals[0])
    left = strategy.compression_state.total(table)
    # A sum in 16 bits is rounded once more, and so is what is kept.
    exact = np.dtype(dtype).itemsize == 4 and kept == "float32"
    tolerance = 1e-5 if exact else 0.05
    np.testing.assert_allclose(sent + left, given, atol=tolerance)
    assert (strategy.traffic.compressed_tensors, strategy.traffic.wire) == (1, "rows")


@pytest.mark.parametrize(
    ("params", "part", "words", "warnings"),
    [
        ({**COLD, "sparse_residual_bytes": 1000}, 1 / 16, "two layers without residuals", 1),
        ({"type": "quantized", "bits": 8, "sparse": True}, 1 / 253, "8 bits (a scale for each", 0),
    ],
)
def test_without_residuals_two_layers_or_eight_bits_are_sent(
    params: Any, part: float, words: str, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="absl")
    strategy, _, step = made(params)
    rows = rows_of(0, (20, 30))
    total = as_dense(step(rows)[0])
    largest = sum(np.abs(dense([mine])).max(axis=1, keepdims=True) for mine in rows)
    assert (np.abs(total - dense(rows)) <= largest * part + 1e-6).all()
    assert len(strategy.compression_state) == 0
    assert words in str(strategy.schedule)
    assert sum("table: too large for" in line for line in caplog.messages) == warnings


@cases(
    "params",
    {**COLD, "sparse": False},
    {"type": "none"},
    {**COLD, "exclude": "table"},
    {"type": "2bit", "threshold": 0.5},
    {"type": "bfloat16"},
    tf_gc.ByVariable({"table": tf_gc.NoCompression()}),
    {**COLD, "bypass_size": 5000},
    {"type": "quantized", "warm_up": False},  # the table is small
    ids=str,
)
def test_rows_that_are_not_compressed_are_those_of_the_stock_strategy(params: Any) -> None:
    stock = tf.distribute.MirroredStrategy(
        cpus(2), cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    expected, total = (made(each)[-1](rows_of(0, (20, 30)))[0] for each in (stock, params))
    np.testing.assert_array_equal(total.values, expected.values)
    np.testing.assert_array_equal(total.indices, expected.indices)


def test_a_warm_up_sends_merged_rows_in_full_precision() -> None:
    strategy, table, step = made(tf_gc.Quantized(sparse=True))
    rows = rows_of(0, (20, 30))
    total = step(rows)[0]
    np.testing.assert_array_equal(total.indices, np.unique(np.concatenate([i for _, i in rows])))
    np.testing.assert_allclose(as_dense(total), dense(rows), rtol=1e-5, atol=1e-6)
    for _ in range(30):
        step(rows)
    assert 10 <= strategy.compression_state.warm_up_steps < 30
    assert strategy.compression_state.total(table).any()


def test_an_index_of_no_row_is_an_error_that_names_the_variable() -> None:
    strategy, table, step = made(COLD)
    good, bad = rows_of(0, (4, 4))
    step([good, good])
    before = strategy.compression_state.total(table)
    for index in (-1, SHAPE[0]):
        wrong = (bad[0], np.full(4, index, np.int32))
        named = rf"gradient of table has the index {index}, "
        with pytest.raises(tf.errors.InvalidArgumentError, match=named):
            step([wrong, wrong])
    np.testing.assert_array_equal(strategy.compression_state.total(table), before)


def test_all_tables_travel_in_one_message() -> None:
    strategy = strategy_of(COLD)
    tables = variables_of(strategy, **{f"table_{n}": (n, 32) for n in (100, 200, 300)})

    def replica_step() -> None:
        rows = tf.IndexedSlices(tf.ones((5, 32)), tf.range(5))
        tf_gc.all_reduce_gradients([(rows, table) for table in tables])

    tf.function(strategy.run)(replica_step)
    traffic = strategy.traffic
    assert (traffic.buckets, traffic.compressed_tensors) == (1, 3)
    assert traffic.stock_bytes == 3 * (5 * 32 * 4 + 5 * 4)
    assert traffic.sent_bytes < traffic.stock_bytes / 4
    assert "table_300, table_200, table_100" in str(strategy.schedule)


def test_a_pattern_knows_that_a_gradient_is_sparse() -> None:
    seen: list[Gradient] = []
    strategy, _, step = made({**COLD, "exclude": lambda gradient: seen.append(gradient) or True})
    step(rows_of(0, (2, 2)))
    assert seen[0].sparse
    assert strategy.traffic.excluded_tensors == 1


@cases("before, after", (2, 4), (4, 2), (4, 1))
def test_what_was_not_sent_survives_another_number_of_replicas(
    before: int, after: int, tmp_path: Any
) -> None:
    strategy, _, step = made(COLD, before)
    sums = given_and_sent(step, *(rows_of(number, [10] * before) for number in range(3)))
    path = tf.train.Checkpoint(state=strategy.compression_state).save(str(tmp_path / "saved"))
    strategy, table, step = made(COLD, after, restore=path)
    # Each row of the first 50 occurs.
    sums += given_and_sent(step, *(rows_of(number, [200] * after) for number in range(3, 6)))
    given, sent = sums
    left = strategy.compression_state.total(table)
    assert (after == 1) == (left is None or not left.any())
    np.testing.assert_allclose(sent + (0 if left is None else left), given, atol=1e-4)


def test_a_trial_that_ends_in_full_precision_sends_what_is_left_of_all_rows() -> None:
    strategy, table, step = made(tf_gc.Auto(COLD, choice="full precision"))
    given, sent = given_and_sent(step, *(rows_of(number, (3, 3)) for number in range(60)))
    assert not strategy.compression_state.total(table).any()
    np.testing.assert_allclose(sent, given, atol=1e-3)


def test_a_row_that_is_not_finite_keeps_its_residual_and_is_not_finite_everywhere() -> None:
    strategy, table, step = made(COLD)
    rows = rows_of(0, (20, 20))
    step(rows)
    residual = strategy.compression_state.residuals_of(table)[0]
    before = residual.numpy()
    rows[0][0][3, 5] = np.inf
    row = rows[0][1][3]
    for total in step(rows):
        np.testing.assert_array_equal(np.argwhere(~np.isfinite(as_dense(total))), [[row, 5]])
    assert residual.numpy()[row, 5] == before[row, 5]
