"""A checkpoint that is written while training goes on holds the moment of its save, all of it."""

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.strategies.helpers import cpus, variables_of

ASYNCHRONOUS = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
AT_ONCE: dict[str, Any] = {"bypass_size": 0, "warm_up": False}
PARAMS = tf_gc.ByVariable(
    {
        lambda gradient: gradient.shape == (40, 60): tf_gc.Quantized(**AT_ONCE),
        lambda gradient: gradient.shape == (80, 70): tf_gc.LowRank(1, **AT_ONCE),
        lambda gradient: gradient.shape == (500, 8): tf_gc.Quantized(sparse=True, **AT_ONCE),
    },
    tf_gc.Quantized(bypass_size=0),
)


class Gate(tf.Module):
    """Holds the thread that writes, before it looks for what a checkpoint has."""

    def __init__(self) -> None:
        super().__init__()
        self._trains = threading.get_ident()
        self.opened = threading.Event()

    def _trackable_children(self, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != self._trains:
            self.opened.wait(60)  # to end even if the test fails
        return super()._trackable_children(*args, **kwargs)


def kept(strategy: tf_gc.CompressedMirroredStrategy) -> dict[str, np.ndarray]:
    return {e.key: e.value.numpy() for e in strategy.compression_state.entries()}


def test_a_checkpoint_holds_what_there_was_at_its_save(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), PARAMS)
    *dense, table = variables_of(strategy, (40, 60), (80, 70), (7, 9), (500, 8))

    @tf.function
    def step(number: tf.Tensor) -> None:
        def replica_step() -> None:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            seed = tf.stack([number, tf.cast(replica, tf.int32)])
            of_rows = tf.random.stateless_normal([90, 8], seed)
            rows = tf.IndexedSlices(of_rows, tf.range(90), tf.constant([500, 8]))
            gradients = [tf.random.stateless_normal(v.shape, seed) for v in dense]
            sums = tf_gc.all_reduce_gradients([*zip(gradients, dense, strict=True), (rows, table)])
            dense[0].assign_sub(sums[0])

        strategy.run(replica_step)

    # TensorFlow looks for what a checkpoint has in the order of the names.
    gate = Gate()
    checkpoint = tf.train.Checkpoint(a=gate, kept=strategy.compression_state, weights=dense)
    saves = []
    # Nothing is kept at the first save. The first step makes residuals while it is under way.
    for number in range(4):
        gate.opened.clear()
        there = kept(strategy), dense[0].numpy()
        saves.append((checkpoint.save(tmp_path / "checkpoint", options=ASYNCHRONOUS), *there))
        step(tf.constant(number))
        gate.opened.set()
        checkpoint.sync()
    (_, before, _), (_, last, _) = saves[-2:]
    slots = [e.slot for e in strategy.compression_state.entries()]
    assert sorted(slots) == ["factors", *4 * ["residual"], "warm_up"]
    # In a warm-up nothing is left.
    assert sum(np.array_equal(last[key], before[key]) for key in last) == 1
    for path, values, weights in saves:
        checkpoint.restore(path).assert_consumed()
        np.testing.assert_array_equal(dense[0], weights)
        for key, value in kept(strategy).items():
            np.testing.assert_array_equal(value, values.get(key, np.zeros_like(value)), key)
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert not [line for line in said if "tf_gc" in line or "AutoGraph" in line]
