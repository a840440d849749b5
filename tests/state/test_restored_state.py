"""The state in checkpoints and backups is restored where it fits, whoever saved it."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.strategies.helpers import cpus, reducer

SMALL = tf_gc.Quantized(bypass_size=0)


def program(params: Any, replicas: int, *named: Any) -> tuple[Any, list[tf.Variable]]:
    """Returns a strategy and variables, each of a name and a shape."""
    strategy = tf_gc.CompressedMirroredStrategy(cpus(replicas), params)
    with strategy.scope():
        return strategy, [tf.Variable(tf.zeros(shape), name=name) for name, shape in named]


def step(strategy: tf.distribute.Strategy, variables: list[tf.Variable]) -> None:
    replicas = strategy.num_replicas_in_sync
    reducer(strategy, variables)([np.zeros((replicas, *v.shape), np.float32) for v in variables])


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
