"""The state in checkpoints and backups is restored where it fits, whoever saved it."""

import functools
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.strategies.helpers import cpus, reducer
from tf_gc.steps import trial, warm_up

GOLDEN = Path(__file__).parents[1] / "golden"
# Made by version 0.1 as of 73bb119, in which a variable had one residual, whichever stream asked.
# The checkpoint is of two variables "v" and one "w", after 20 steps with `Auto`, and sums of
# residuals that count from 0.5, 10.5 and 20.5. The backup is of four epochs of a Dense layer.
BEFORE_STREAMS = GOLDEN / "state_before_streams"
# Made as of 4919e04, in which TensorFlow held each value by itself. The checkpoint is of two
# variables "v" and a matrix in low rank, after 30 steps of two streams.
BEFORE_REGISTRY = GOLDEN / "state_before_registry"
SMALL = tf_gc.Quantized(bypass_size=0)


def program(params: Any, replicas: int, *named: Any) -> tuple[Any, list[tf.Variable]]:
    """Returns a strategy and variables, each of a name and a shape."""
    strategy = tf_gc.CompressedMirroredStrategy(cpus(replicas), params)
    with strategy.scope():
        return strategy, [tf.Variable(tf.zeros(shape), name=name) for name, shape in named]


def step(strategy: tf.distribute.Strategy, variables: list[tf.Variable]) -> None:
    replicas = strategy.num_replicas_in_sync
    reducer(strategy, variables)([np.zeros((replicas, *v.shape), np.float32) for v in variables])


@cases("replicas, step_first", (3, False), (2, True))
def test_a_checkpoint_of_before_streams(replicas: int, step_first: bool) -> None:
    auto = tf_gc.Auto(SMALL)
    strategy, variables = program(auto, replicas, ("v", 3), ("v", 5), ("w", 4))
    state = strategy.compression_state
    if step_first:
        step(strategy, variables)
    checkpoint = tf.train.Checkpoint(compression=state)
    checkpoint.read(str(BEFORE_STREAMS / "checkpoint")).expect_partial()
    if not step_first:
        step_with_nothing(strategy, variables)
    for i, variable in enumerate(variables):
        expected = np.arange(variable.shape[0]) + 10 * i + 0.5
        np.testing.assert_allclose(state.total(variable), expected, rtol=1e-6)
    states = json.loads((BEFORE_STREAMS / "states.json").read_text())
    for slot in (warm_up.SLOT, trial.SLOT):
        (entry,) = state.entries(slot=slot)
        np.testing.assert_array_equal(entry.value.numpy(), np.float32(states[slot.name]))


def step_with_nothing(
    strategy: tf.distribute.Strategy, variables: list[tf.Variable], *streams: str | None
) -> None:
    """Builds a step, which makes all state, without running it."""

    def replica_step() -> None:
        for stream in streams or [None]:
            tf_gc.all_reduce_gradients([(tf.zeros(v.shape), v) for v in variables], stream)

    tf.function(lambda: strategy.run(replica_step)).get_concrete_function()


def test_a_checkpoint_may_have_its_state_in_parts() -> None:
    """Under parameter servers it has."""
    strategy, (variable,) = program(SMALL, 2, ("v", 5))
    state = strategy.compression_state
    for component in state.residuals_of(variable):
        component.assign(tf.range(5.0))
    data = state.serialize()
    state.reset()
    state.deserialize(np.array([data[i : i + 100] for i in range(0, len(data), 100)], object))
    np.testing.assert_array_equal(state.total(variable), 2 * np.arange(5))


@cases("replicas, step_first", (3, False), (2, True))
def test_a_checkpoint_of_before_the_registry(replicas: int, step_first: bool) -> None:
    params = tf_gc.ByVariable({"m": tf_gc.LowRank(1, bypass_size=0)}, SMALL)
    strategy, variables = program(params, replicas, ("v", 3), ("v", 5), ("m", (4, 6)))
    state = strategy.compression_state
    step = functools.partial(step_with_nothing, strategy, variables, "actor", "critic")
    if step_first:
        step()
    for _ in range(2):
        tf.train.Checkpoint(compression=state).read(str(BEFORE_REGISTRY / "checkpoint"))
        step()
        kept = {f"{e.slot}|{e.key}": e.value.numpy() for e in state.entries()}
        expected = json.loads((BEFORE_REGISTRY / "states.json").read_text())
        assert kept.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(kept[name], np.float32(value), rtol=1e-6)
        assert not state.waiting
        state.reset()


@pytest.mark.parametrize("saved", [BEFORE_STREAMS, BEFORE_REGISTRY], ids=lambda path: path.name)
def test_a_backup_of_an_earlier_version(tmp_path: Path, saved: Path) -> None:
    folder = shutil.copytree(saved / "backup", tmp_path / "backup")
    strategy, _ = program(SMALL, 4)
    with strategy.scope():
        layers = [keras.Input((4,)), keras.layers.Dense(3, name="scores")]
        model = keras.Sequential(layers, name="old")
        model.compile(keras.optimizers.SGD(0.1), "mse")
    found: dict[str, Any] = {}

    class Look(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            state = strategy.compression_state
            found["totals"] = [state.total(v.value) for v in model.trainable_variables]

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            found.setdefault("warm-up", strategy.compression_state.warm_up_steps)

    backup = tf_gc.keras.BackupAndRestore(folder)
    data = np.zeros((8, 4), np.float32), np.zeros((8, 3), np.float32)
    model.fit(*data, epochs=5, batch_size=8, verbose=0, callbacks=[backup, Look()])
    expected = np.load(saved / "expected.npz")
    for i, total in enumerate(found["totals"]):
        assert expected[f"arr_{i}"].any()
        np.testing.assert_allclose(total, expected[f"arr_{i}"], rtol=1e-6)
    steps = int(warm_up.steps(expected["warm_up"]))
    assert strategy.compression_state.warm_up_steps in (steps, steps + 1)


@cases("step_first", True, False)
def test_a_residual_of_another_shape_is_left_out(
    tmp_path: Path, step_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A head of 10 classes becomes one of 20."""
    saved, variables = program(tf_gc.TwoBit(1.0), 2, ("trunk", 3), ("head", 10))
    reducer(saved, variables)([np.full((2, *v.shape), 0.1, np.float32) for v in variables])
    path = tf.train.Checkpoint(state=saved.compression_state).save(tmp_path / "checkpoint")
    strategy, variables = program(tf_gc.TwoBit(1.0), 2, ("trunk", 3), ("head", 20))
    checkpoint = tf.train.Checkpoint(state=strategy.compression_state)
    caplog.set_level(logging.INFO, logger="absl")
    if step_first:
        step(strategy, variables)
        caplog.clear()
    checkpoint.restore(path)
    step(strategy, variables)
    totals = [strategy.compression_state.total(variable) for variable in variables]
    np.testing.assert_allclose(totals[0], 0.2, rtol=1e-6)
    np.testing.assert_array_equal(totals[1], np.zeros(20, np.float32))
    (line,) = [m for m in caplog.messages if m.startswith("tf_gc: residuals")]
    assert line == (
        "tf_gc: residuals of 1 variables restored; residuals of head start at zero, for they had "
        "another shape"
    )
