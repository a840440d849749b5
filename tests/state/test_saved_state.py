"""Residuals are saved as the variables that they are: as of each save, and a tensor each.

Also while training goes on.
"""

import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.state.checkpoints import values_in
from tests.strategies.helpers import cpus, reducer, variables_of

PARAMS = tf_gc.TwoBit(1.0)  # more than any gradient here, so that all stays in the residuals


def leave_alike(strategy: Any, variables: list[tf.Variable], value: float) -> None:
    gradients = [np.full((2, *v.shape), value, np.float32) for v in variables]
    reducer(strategy, variables)(gradients)


def test_a_function_writes_what_there_is_at_each_call(tmp_path: Path) -> None:
    saved = tf_gc.CompressedMirroredStrategy(cpus(2), PARAMS)
    trained = variables_of(saved, a=3, b=3)
    leave_alike(saved, trained, 0.1)
    path = tf.train.Checkpoint(compression=saved.compression_state).write(tmp_path / "before")
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), PARAMS)
    a, b = variables_of(strategy, a=3, b=3)
    checkpoint = tf.train.Checkpoint(compression=strategy.compression_state)
    checkpoint.read(path)
    leave_alike(strategy, [a], 0.1)  # what there is of "b" waits

    @tf.function
    def write(path: tf.Tensor) -> tf.Tensor:
        return checkpoint.write(path)

    for number, (trained, of_a, of_b) in enumerate([([a], 0.6, 0.2), ([a, b], 0.8, 0.4)]):
        leave_alike(strategy, trained, 0.1)
        kept = values_in(write(tf.constant(str(tmp_path / str(number)))).numpy())
        np.testing.assert_allclose(kept["residual a"], [of_a] * 3, rtol=1e-6)
        np.testing.assert_allclose(kept["residual b"], [of_b] * 3, rtol=1e-6)


def test_a_function_that_trains_writes_what_it_left(tmp_path: Path) -> None:
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), PARAMS)
    (a,) = variables_of(strategy, a=3)
    checkpoint = tf.train.Checkpoint(compression=strategy.compression_state)

    def replica_step() -> None:
        tf_gc.all_reduce_gradients([(tf.fill([3], 0.1), a)])

    @tf.function
    def step(path: tf.Tensor) -> tf.Tensor:
        strategy.run(replica_step)
        return checkpoint.write(path)

    for steps in (1, 2):
        kept = values_in(step(tf.constant(str(tmp_path / str(steps)))).numpy())
        np.testing.assert_allclose(kept["residual a"], [0.2 * steps] * 3, rtol=1e-6)


def test_a_saved_model_of_a_trainer(tmp_path: Path) -> None:
    def trainer() -> tuple[Any, Any]:
        strategy = tf_gc.CompressedMirroredStrategy(cpus(2), PARAMS)
        module = tf.Module()
        (module.a,) = variables_of(strategy, a=3)
        module.checkpoint = tf.train.Checkpoint(a=module.a, kept=strategy.compression_state)
        module.serve = tf.function(lambda: module.a + 1.0, input_signature=[])
        return strategy, module

    strategy, module = trainer()
    leave_alike(strategy, [module.a], 0.1)
    tf.saved_model.save(module, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.serve(), [1.0] * 3)
    strategy, module = trainer()
    tf.train.Checkpoint(module).restore(str(tmp_path / "model" / "variables" / "variables"))
    leave_alike(strategy, [module.a], 0.0)
    np.testing.assert_allclose(strategy.compression_state.total(module.a), [0.2] * 3)


ASYNCHRONOUS = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
AT_ONCE: dict[str, Any] = {"bypass_size": 0, "warm_up": False}
OF_EACH_KIND = tf_gc.ByVariable(
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
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), OF_EACH_KIND)
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


MEGABYTES = 96
SAVE = f"""
import resource, sys
from tests.strategies.helpers import cpus
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import tf_gc
strategy = tf_gc.CompressedMirroredStrategy(cpus(2))
with strategy.scope():
    variables = [tf.Variable(tf.zeros([{MEGABYTES // 4} << 16])) for _ in range(4)]
state = strategy.compression_state
for variable in variables:
    state.residuals_of(variable)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
tf.train.Checkpoint(state=tf.train.Checkpoint()).write(sys.argv[1])  # TensorFlow's own needs
before = peak()
tf.train.Checkpoint(state=state).write(sys.argv[1])
print(peak() - before)
"""


def test_a_save_takes_no_more_memory_than_the_sums(tmp_path: Path) -> None:
    """As for TensorFlow's own variables with this aggregation."""
    command = [sys.executable, "-c", SAVE, str(tmp_path / "checkpoint")]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert float(output) < 1.2 * MEGABYTES
