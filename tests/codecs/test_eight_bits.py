"""Gradients in eight bits, without residuals: how far off a sum is, and what the user sees."""

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.oracles.two_bit import to_blocks
from tests.strategies.helpers import normal, reducer, strategy_of, summing
from tf_gc.steps.trial import STEPS

SHAPES = [(50, 61), (4,), (7, 9, 11)]


def largest(values: np.ndarray) -> np.ndarray:
    """For each element the largest magnitude of its block."""
    most = np.abs(to_blocks(values.reshape(-1))).max(axis=1)
    return most.repeat(128)[: values.size].reshape(values.shape)


@cases("plan", "all_gather", "scatter_gather")
@cases("replicas, dtype", (3, tf.float32), (2, tf.float16), (5, tf.bfloat16))
def test_sums_are_off_by_a_part_of_the_largest_of_a_block(
    plan: str, replicas: int, dtype: tf.DType
) -> None:
    params = tf_gc.Quantized(8, bypass_size=0, plan=plan)
    strategy = strategy_of(params, replicas)
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(shape, dtype)) for shape in SHAPES]
    gradients = [g.astype(dtype.as_numpy_dtype) for g in normal(SHAPES, 1, replicas)]
    first, *others = reducer(strategy, variables)(gradients)
    np.testing.assert_equal(others, [first] * len(others))
    for total, parts in zip(first, gradients, strict=True):
        exact = parts.astype(np.float64).sum(axis=0)
        off = sum(largest(part.astype(np.float64)) for part in parts) / 253
        if plan == "scatter_gather":  # where the sum is rounded once more
            off += (largest(exact) + off) / 253
        off += np.abs(exact) * 2.0 ** -{"float32": 20, "float16": 10, "bfloat16": 7}[dtype.name]
        assert (np.abs(total.astype(np.float64) - exact) <= off).all()
    assert len(strategy.compression_state) == 0


@pytest.mark.parametrize("plan", ["all_gather", "scatter_gather"])
@cases("bad", np.nan, -np.inf, 3e38)
def test_a_bad_number_marks_its_element_in_its_step_alone(plan: str, bad: float) -> None:
    _, run = summing(tf_gc.Quantized(8, bypass_size=0, plan=plan), (900,), replicas=3)
    (clean,) = normal([(900,)], 1, 3)
    before = run([clean])
    for element in (50, 450, 800):  # of shards of 3 blocks: one in each
        gradients = clean.copy()
        gradients[1, element] = bad
        for (total,) in run([gradients]):
            np.testing.assert_array_equal(np.isnan(total), np.arange(900) == element)
    np.testing.assert_equal(run([clean]), before)


def test_it_says_what_it_sends() -> None:
    auto = tf_gc.Auto({"type": "quantized", "bits": 8}, choice="compressed")
    strategy, run = summing(auto, (50, 64))
    gradient = np.ones((2, 50, 64), "f")
    gradient[:, ::2] = 0
    for _ in range(STEPS + 2):
        run([gradient])
    report = strategy.report()
    assert (report.density, report.residual_ratios, report.residual_ratio) == (0.5, {}, None)
    assert (report.traffic.sent_bytes, report.traffic.stock_bytes) == (3280, 12800)
    assert "by 8 bits, all_gather, packed" in str(report)
    assert len(strategy.compression_state) == 0
