"""Gradients in 16 bits: what is rounded when, and what the user sees."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.strategies.helpers import summing
from tf_gc.steps.trial import STEPS

SHAPES = [(50, 61), (4,), (7, 9, 11)]


def expected(gradient: np.ndarray, dtype: str, plan: str) -> np.ndarray:
    """The sum in float32 of what was rounded, in the order of the replicas."""
    rounded = tf.as_dtype(dtype).as_numpy_dtype
    with np.errstate(over="ignore", invalid="ignore"):
        total = gradient[0].astype(rounded).astype(np.float32)
        for part in gradient[1:]:
            total = total + part.astype(rounded).astype(np.float32)
        return total.astype(rounded).astype(np.float32) if plan == "scatter_gather" else total


@pytest.mark.parametrize(
    ("dtype", "plan"), [("bfloat16", "scatter_gather"), ("float16", "all_gather")]
)
@cases("replicas, eager", (5, False), (2, True))
def test_what_is_rounded_is_summed_in_float32(
    dtype: str, plan: str, replicas: int, eager: bool
) -> None:
    random = np.random.default_rng(replicas)
    # As different in size as gradients are, so that their order matters.
    gradients = [
        (random.normal(size=shape) * 10 ** random.uniform(-6, 2, size=shape)).astype("f")
        for shape in ((replicas, *each) for each in SHAPES)
    ]
    params = tf_gc.Cast(dtype, bypass_size=0, plan=plan)
    strategy, run = summing(params, *SHAPES, replicas=replicas, eager=eager)
    for mine in run(gradients):
        for value, gradient in zip(mine, gradients, strict=True):
            np.testing.assert_array_equal(value, expected(gradient, dtype, plan))
    assert len(strategy.compression_state) == 0


@pytest.mark.parametrize("plan", ["all_gather", "scatter_gather"])
def test_what_float16_cannot_hold_is_seen_as_infinite(plan: str) -> None:
    gradients = [np.ones((2, 64), "f")]
    gradients[0][0, :6] = [1e5, -1e5, 6e4, np.nan, np.inf, 1e-9]
    gradients[0][1, :6] = [1.0, 1.0, 6e4, 1.0, 1.0, 0.0]
    _, run = summing(tf_gc.Cast("float16", bypass_size=0, plan=plan), (64,))
    # A sum is in float32 and need not fit, but in a scatter-gather it is sent.
    of_sum = np.inf if plan == "scatter_gather" else 2 * np.float32(np.float16(6e4))
    for (total,) in run(gradients):
        np.testing.assert_array_equal(total[:6], [np.inf, -np.inf, of_sum, np.nan, np.inf, 0.0])
        np.testing.assert_array_equal(total[6:], np.full(58, 2.0))


def test_what_codes_left_unsent_is_added_to_the_first_gradient(tmp_path: Path) -> None:
    gradients = [np.full((2, 50, 50), 0.25, "f"), np.zeros((2, 50, 50), "f")]
    with_codes, run = summing(tf_gc.TwoBit(1.0), (50, 50))
    (total,), _ = run(gradients[:1])
    np.testing.assert_array_equal(total, np.zeros((50, 50)))  # nothing has been sent
    path = tf.train.Checkpoint(state=with_codes.compression_state).save(str(tmp_path / "saved"))

    strategy, run = summing(tf_gc.Cast(), (50, 50))
    tf.train.Checkpoint(state=strategy.compression_state).read(path)
    for value in (0.5, 0.0):
        (total,), _ = run(gradients[1:])
        np.testing.assert_array_equal(total, np.full((50, 50), value, "f"))


def test_trials_take_it() -> None:
    mine = np.random.default_rng(1).normal(size=(2, 50, 50)).astype("f")
    auto = tf_gc.Auto(tf_gc.Cast("float16"), choice="compressed")
    strategy, run = summing(auto, (50, 50))
    (total,), _ = [run([mine]) for _ in range(STEPS + 2)][-1]
    np.testing.assert_array_equal(total, expected(mine, "float16", "all_gather"))
    assert len(strategy.compression_state) == 0


def test_a_step_measures_itself() -> None:
    strategy, run = summing({"type": "bfloat16"}, (50, 50))
    gradient = np.ones((2, 50, 50), "f")
    gradient[:, ::2] = 0
    run([gradient])
    report = strategy.report()
    assert (report.density, report.residual_ratios, report.residual_ratio) == (0.5, {}, None)
    assert (report.traffic.sent_bytes, report.traffic.stock_bytes) == (5000, 10000)
    assert "bfloat16" in str(report)
