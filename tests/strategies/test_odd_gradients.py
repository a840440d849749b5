"""Gradients that a schedule does not expect: of no known shape, or two of one variable."""

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.strategies.helpers import normal, reducer, strategy_of, variables_of

SHAPE = (30, 100)
PARAMS = {"type": "2bit", "warm_up": False}
NOT_SPARSE = {**PARAMS, "sparse": False}


@cases("eager", False, True)
def test_a_variable_without_a_shape_is_summed_beside_others(eager: bool) -> None:
    strategy = strategy_of(PARAMS)
    (known,) = variables_of(strategy, SHAPE)
    with strategy.scope():
        unknown = tf.Variable(tf.zeros([2, 3]), shape=tf.TensorShape([None, 3]))
    mine = normal([SHAPE, (2, 3)], 1)
    for _, total in reducer(strategy, [known, unknown], eager)(mine):
        np.testing.assert_array_equal(total, mine[1].sum(axis=0))
    assert strategy.traffic.compressed_tensors == strategy.traffic.bypassed_tensors == 1
    said = "1 are of variables of unknown shape (None, 3): give them a known one"
    assert said in str(strategy.schedule)


@cases("eager", False, True)
def test_the_second_gradient_of_a_variable_is_summed_in_full_precision(eager: bool) -> None:
    strategy = strategy_of(PARAMS)
    (variable,) = variables_of(strategy, SHAPE)
    alone = strategy_of(PARAMS)
    mine = normal([SHAPE, SHAPE], 1)
    expected = reducer(alone, variables_of(alone, SHAPE), eager)(mine[:1])
    sums = reducer(strategy, [variable, variable], eager)(mine)
    for (first, second), (compressed,) in zip(sums, expected, strict=True):
        np.testing.assert_array_equal(first, compressed)
        np.testing.assert_array_equal(second, mine[1].sum(axis=0))
    assert "1 are of variables that have another gradient in the step: add" in str(
        strategy.schedule
    )


def test_a_variable_made_outside_of_the_scope_is_said_to_be(
    caplog: pytest.LogCaptureFixture,
) -> None:
    strategy = strategy_of(PARAMS)
    (mine,) = normal([SHAPE], 1)
    for (total,) in reducer(strategy, [tf.Variable(tf.zeros(SHAPE), name="out")])([mine]):
        np.testing.assert_array_equal(total, mine.sum(axis=0))
    assert "1 are of variables made outside of strategy.scope() (out)" in caplog.text


def test_eager_steps_that_differ_in_bytes_alone_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="absl")
    strategy = strategy_of(NOT_SPARSE)
    dense, sparse = variables_of(strategy, SHAPE, SHAPE)

    def step(rows: int) -> None:
        slices = tf.IndexedSlices(tf.ones([rows, SHAPE[1]]), tf.range(rows), tf.constant(SHAPE))
        tf_gc.all_reduce_gradients([(tf.ones(SHAPE), dense), (slices, sparse)])

    sent = []
    for rows in (1, 2, 3):
        strategy.run(step, args=(rows,))
        sent.append(strategy.traffic.bypassed_bytes)
    assert sent[0] < sent[1] < sent[2]
    said = [record.message for record in caplog.records if "bytes a step" in record.message]
    assert len(said) == 1
