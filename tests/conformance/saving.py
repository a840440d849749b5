"""A strategy saves files of plain TensorFlow, and any strategy restores them."""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tests.conformance.promise import assert_on_all, local, promise, replica, task

Strategy = tf.distribute.Strategy


class Module(tf.Module):
    """A kernel, and a count that each replica has of its own."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.kernel = tf.Variable(tf.fill([2, 3], value))
        self.count = tf.Variable(
            0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )


def module(strategy: Strategy, value: float) -> Module:
    with strategy.scope():
        return Module(value)


@promise()
def a_checkpoint_brings_variables_back(strategy: Strategy, folder: Path) -> None:
    """Also those that are made after it is asked to restore."""
    saved, restored = module(strategy, 3.0), module(strategy, 0.0)
    strategy.run(lambda: saved.count.assign_add(1.0 + tf.cast(replica(), tf.float32)))
    total = sum(range(1, strategy.num_replicas_in_sync + 1))
    path = tf.train.Checkpoint(module=saved).save(folder / f"worker{task(strategy)}")
    tf.train.Checkpoint(module=restored).restore(path).assert_consumed()
    assert_on_all(strategy, restored.kernel, np.full([2, 3], 3))
    later = tf.Module()
    status = tf.train.Checkpoint(module=later).restore(path)
    with strategy.scope():
        later.kernel = tf.Variable(tf.zeros([2, 3]))
        later.count = Module(0.0).count
        status.assert_existing_objects_matched()
        assert restored.count.read_value() == total
        assert later.count.read_value() == total
    assert_on_all(strategy, later.kernel, np.full([2, 3], 3))


# tests/multiworker/test_files.py has workers write, tests/keras/test_saving.py files of weights.
@promise(on_workers=())
def keras_files_bring_model_and_optimizer_back(strategy: Strategy, folder: Path) -> None:
    """In the scope of the strategy, and without it."""
    with strategy.scope():
        layers = [keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)]
        saved = keras.Sequential(layers)
        saved.compile(keras.optimizers.Adam(0.1), "mse")
    saved.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=8, verbose=0)
    path = str(folder / "model.keras")
    saved.save(path)
    with strategy.scope():
        inside = keras.saving.load_model(path)
    outside = keras.saving.load_model(path)
    for loaded in (inside, outside):
        assert loaded.optimizer.iterations == 1
        variables = [*loaded.weights, *loaded.optimizer.variables]
        expected = [*saved.weights, *saved.optimizer.variables]
        for variable, of_saved in zip(variables, expected, strict=True):
            np.testing.assert_array_equal(variable, of_saved)
    x = tf.ones([2, 4])
    values = strategy.run(lambda: inside(x))
    for value in local(strategy, values):
        np.testing.assert_allclose(value, outside(x), rtol=1e-6)
