"""Residuals are saved as the variables that they are: as of each save, and a tensor each."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tf_gc
from tests.state.checkpoints import values_in
from tests.strategies.helpers import cpus, reducer, variables_of

PARAMS = tf_gc.TwoBit(1.0)  # more than any gradient here, so that all stays in the residuals


def leave(strategy: Any, variables: list[tf.Variable], value: float) -> None:
    gradients = [np.full((2, *v.shape), value, np.float32) for v in variables]
    reducer(strategy, variables)(gradients)


def test_a_function_writes_what_there_is_at_each_call(tmp_path: Path) -> None:
    saved = tf_gc.CompressedMirroredStrategy(cpus(2), PARAMS)
    trained = variables_of(saved, a=3, b=3)
    leave(saved, trained, 0.1)
    path = tf.train.Checkpoint(compression=saved.compression_state).write(tmp_path / "before")
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), PARAMS)
    a, b = variables_of(strategy, a=3, b=3)
    checkpoint = tf.train.Checkpoint(compression=strategy.compression_state)
    checkpoint.read(path)
    leave(strategy, [a], 0.1)  # what there is of "b" waits

    @tf.function
    def write(path: tf.Tensor) -> tf.Tensor:
        return checkpoint.write(path)

    for number, (trained, of_a, of_b) in enumerate([([a], 0.6, 0.2), ([a, b], 0.8, 0.4)]):
        leave(strategy, trained, 0.1)
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
    leave(strategy, [module.a], 0.1)
    tf.saved_model.save(module, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.serve(), [1.0] * 3)
    strategy, module = trainer()
    tf.train.Checkpoint(module).restore(str(tmp_path / "model" / "variables" / "variables"))
    leave(strategy, [module.a], 0.0)
    np.testing.assert_allclose(strategy.compression_state.total(module.a), [0.2] * 3)


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
