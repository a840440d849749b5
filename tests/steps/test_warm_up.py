"""The first steps in full precision, and the rule that ends them."""

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import tf_gc
from tests.cases import cases
from tests.strategies.helpers import normal, reducer, summing, variables_of
from tf_gc.steps import warm_up

pytestmark = pytest.mark.optimized_graphs

SHAPES = [(40, 60), (3,), (2400,)]
WARM = tf_gc.TwoBit()


def steps_of(norms: list[float]) -> int:
    """How many steps a warm-up takes, said again: `norms` are the norms of the steps' sums."""
    average = weight = largest = 0.0
    since = 0
    for done in range(1, len(norms) + 1):
        if done > 1:  # a step hears of the one before it
            norm = norms[done - 2]
            if math.isfinite(norm):
                average = 0.9 * average + 0.1 * norm
                weight = 0.9 * weight + 0.1
            now = average / weight if weight else 0.0
            grows = now > 1.01 * largest
            since, largest = (0, now) if grows else (since + 1, largest)
        if since >= warm_up.PATIENCE:
            return done
    return len(norms)


@settings(max_examples=20)
@given(
    st.lists(st.sampled_from([0.0, 1e-3, 0.5, 1.0, 2.0, 30.0, math.nan, math.inf]), max_size=40),
    st.integers(1, 3),
)
def test_it_ends_when_the_average_norm_has_long_not_grown(
    norms: list[float], replicas: int
) -> None:
    norms = norms + [0.0] * 20
    state = tf.zeros(warm_up.SIZE)
    done = 0
    while done < len(norms) and bool(warm_up.is_on(state)):
        reported = replicas * warm_up.report(state)
        state = warm_up.after_step(state, reported, [tf.constant([norms[done] ** 0.5, 0.0])])
        done += 1
    assert done == int(warm_up.steps(state)) == steps_of(norms)


def growing(step: int, replicas: int) -> list[np.ndarray]:
    """Gradients whose sums grow at first and then shrink, while each replica's go on growing."""
    scale = 0.1 * min(step + 1, 8) / max(step - 8, 1)
    gradients = normal(SHAPES, step, replicas, scale)
    opposite = np.linspace(-step, step, replicas)
    return [(g + opposite[(..., *[None] * (g.ndim - 1))]).astype("f") for g in gradients]


@cases("codec, eager", (WARM, False), (tf_gc.OneBit(), True), ids=str)
def test_steps_are_those_without_compression_and_then_those_with_it(
    codec: Any, eager: bool
) -> None:
    each = (codec, tf_gc.NoCompression(), type(codec)(warm_up=False))
    pairs = [summing(params, *SHAPES, eager=eager) for params in each]
    strategies, (warm, dense, compressed) = zip(*pairs, strict=True)
    dense_steps = 0
    for step in range(30):
        now = growing(step, 2)
        sums = warm(now)
        before, dense_steps = dense_steps, strategies[0].compression_state.warm_up_steps
        is_dense = dense_steps > before
        assert is_dense == (step < dense_steps)
        assert (strategies[0].traffic is None) == (eager and is_dense)
        expected = (dense if is_dense else compressed)(now)
        np.testing.assert_equal(sums, expected)
    assert 8 + warm_up.PATIENCE <= dense_steps < 25
    assert strategies[0].traffic == strategies[2].traffic


@cases("bad", np.inf, np.nan)
def test_a_bad_number_is_seen_and_does_not_stay(bad: float) -> None:
    strategy, run = summing(WARM, *SHAPES)
    for step in range(30):
        now = growing(step, 2)
        if step in (0, 4):
            now[2][1, 7] = bad
        for sums in run(now):
            assert np.isfinite(np.delete(sums[2], 7)).all()
            assert np.isfinite(sums[2][7]) == (step not in (0, 4))
    assert strategy.compression_state.warm_up_steps < 25
    for residual in strategy.compression_state.variables:
        assert np.isfinite(residual.numpy()).all()


def test_models_of_a_strategy_have_each_their_own_and_reset_begins_it_again() -> None:
    strategy, first = summing(WARM, *SHAPES)
    second = reducer(strategy, variables_of(strategy, *SHAPES))
    for step in range(40):
        first(growing(step, 2))
    done = strategy.compression_state.warm_up_steps
    second(growing(0, 2))
    assert strategy.compression_state.warm_up_steps == done < 25
    states = strategy.compression_state.entries(slot=warm_up.SLOT)
    assert sorted(int(warm_up.steps(entry.value)) for entry in states) == [1, done]
    strategy.compression_state.reset()
    assert strategy.compression_state.warm_up_steps == 0
    first(growing(0, 2))
    assert strategy.compression_state.warm_up_steps == 1
