"""A strategy saves files of plain TensorFlow, and any strategy restores them."""

from __future__ import annotations

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


def model() -> keras.Model:
    result = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    result.compile(keras.optimizers.Adam(0.1), "mse")
    return result


def trained(strategy: Strategy) -> keras.Model:
    """A model whose optimizer has made a step on each replica."""
    with strategy.scope():
        made = model()
        made.optimizer.build(made.trainable_variables)

    def step() -> None:
        gradients = [tf.ones(v.shape) for v in made.trainable_variables]
        made.optimizer.apply(gradients, made.trainable_variables)

    tf.function(lambda: strategy.run(step))()
    return made


# tests/multiworker/test_files.py has workers write.
@promise(each=("model.keras", "weights.weights.h5"), on_workers=())
def keras_files_bring_model_and_optimizer_back(strategy: Strategy, name: str, folder: Path) -> None:
    """In the scope of the strategy, and without it."""
    saved = trained(strategy)
    path = str(folder / name)
    if name.endswith(".keras"):
        saved.save(path)
    else:
        saved.save_weights(path)

    def load() -> keras.Model:
        if name.endswith(".keras"):
            return keras.saving.load_model(path)
        made = model()
        made.optimizer.build(made.trainable_variables)
        made.load_weights(path)
        return made

    with strategy.scope():
        inside = load()
    outside = load()
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


@promise(on_workers=())
def an_exported_model_needs_no_strategy(strategy: Strategy, folder: Path) -> None:
    exported = trained(strategy)
    path = str(folder / "exported")
    exported.export(path, verbose=False)
    served = tf.saved_model.load(path)
    x = tf.ones([2, 4])
    np.testing.assert_allclose(served.serve(x), exported(x), rtol=1e-6)
