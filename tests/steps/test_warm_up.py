"""The first steps in full precision, and the rule that ends them."""

import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import tf_gc
from tests.cases import cases
from tests.strategies.helpers import cpus, reducer, variables_of
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


def gradients(step: int, replicas: int) -> list[np.ndarray]:
    """Gradients that grow at first and then shrink."""
    random = np.random.default_rng(step)
    scale = 0.1 * min(step + 1, 8) / max(step - 8, 1)
    return [random.normal(scale=scale, size=(replicas, *shape)).astype("f") for shape in SHAPES]


@cases("codec, eager", (WARM, False), (tf_gc.OneBit(), True), ids=str)
def test_steps_are_those_without_compression_and_then_those_with_it(
    codec: Any, eager: bool
) -> None:
    runs = {}
    for name, params in {
        "warm": codec,
        "dense": tf_gc.NoCompression(),
        "compressed": type(codec)(warm_up=False),
    }.items():
        strategy = tf_gc.CompressedMirroredStrategy(cpus(2), params)
        runs[name] = (strategy, reducer(strategy, variables_of(strategy, *SHAPES), eager))
    state = runs["warm"][0].compression_state
    dense_steps = 0
    for step in range(30):
        now = gradients(step, 2)
        sums = runs["warm"][1](now)
        dense = state.warm_up_steps > dense_steps
        dense_steps = state.warm_up_steps
        assert dense == (step < dense_steps)
        assert (runs["warm"][0].traffic is None) == (eager and dense)
        expected = runs["dense" if dense else "compressed"][1](now)
        for mine, other in zip(sums, expected, strict=True):
            for a, b in zip(mine, other, strict=True):
                np.testing.assert_array_equal(a, b)
    assert 8 + warm_up.PATIENCE <= dense_steps < 25
    assert strategy.traffic == runs["warm"][0].traffic


@cases("bad", np.inf, np.nan)
def test_a_bad_number_is_seen_and_does_not_stay(bad: float) -> None:
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), WARM)
    run = reducer(strategy, variables_of(strategy, *SHAPES))
    for step in range(30):
        now = gradients(step, 2)
        if step in (0, 4):
            now[2][1, 7] = bad
        for sums in run(now):
            assert np.isfinite(np.delete(sums[2], 7)).all()
            assert np.isfinite(sums[2][7]) == (step not in (0, 4))
    assert strategy.compression_state.warm_up_steps < 25
    for residual in strategy.compression_state.variables:
        assert np.isfinite(residual.numpy()).all()


def test_models_of_a_strategy_have_each_their_own_and_reset_begins_it_again() -> None:
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), WARM)
    first = reducer(strategy, variables_of(strategy, *SHAPES))
    second = reducer(strategy, variables_of(strategy, *SHAPES))
    for step in range(40):
        first(gradients(step, 2))
    done = strategy.compression_state.warm_up_steps
    second(gradients(0, 2))
    assert strategy.compression_state.warm_up_steps == done < 25
    states = [
        int(warm_up.steps(state)) for state in strategy.compression_state.values(warm_up.SLOT)
    ]
    assert sorted(states) == [1, done]
    strategy.compression_state.reset()
    assert strategy.compression_state.warm_up_steps == 0
    first(gradients(0, 2))
    assert strategy.compression_state.warm_up_steps == 1


def test_a_checkpoint_knows_how_far_it_was(tmp_path: Path) -> None:
    def make() -> tuple[Any, Any, tf.train.Checkpoint]:
        strategy = tf_gc.CompressedMirroredStrategy(cpus(2), WARM)
        with strategy.scope():
            variables = [
                tf.Variable(tf.zeros(shape), name=f"v{i}") for i, shape in enumerate(SHAPES)
            ]
        checkpoint = tf.train.Checkpoint(compression=strategy.compression_state)
        return strategy, reducer(strategy, variables), checkpoint

    strategy, run, checkpoint = make()
    for step in range(12):
        run(gradients(step, 2))
    path = checkpoint.save(tmp_path / "checkpoint")
    again, run_again, checkpoint = make()
    checkpoint.restore(path)
    for step in range(12, 30):
        for mine, other in zip(run(gradients(step, 2)), run_again(gradients(step, 2)), strict=True):
            for a, b in zip(mine, other, strict=True):
                np.testing.assert_array_equal(a, b)
    assert again.compression_state.warm_up_steps == strategy.compression_state.warm_up_steps < 25


def digits_model(strategy: Any, steps: int) -> keras.Model:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((20,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, steps_per_execution=steps)
    return model


def test_it_goes_on_after_a_backup_and_inside_of_a_loop(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    x, y = random.normal(size=(240, 20)).astype("f"), random.integers(10, size=240)
    weights, dense = [], []
    for steps, restarts in ((1, 0), (3, 1)):
        for restart in range(restarts + 1):
            strategy = tf_gc.CompressedMirroredStrategy(cpus(2), WARM)
            model = digits_model(strategy, steps)
            callback = tf_gc.keras.BackupAndRestore(
                str(tmp_path / f"{steps}-{restarts}"), delete_checkpoint=False
            )
            epochs = 4 if restart == restarts else 1
            model.fit(x, y, 40, epochs, 0, [callback], shuffle=False)
        weights.append(model.get_weights())
        dense.append(strategy.compression_state.warm_up_steps)
    assert 10 < dense[0] < 24
    assert dense == [dense[0]] * 2
    for a, b in zip(*weights, strict=True):
        np.testing.assert_array_equal(a, b)
