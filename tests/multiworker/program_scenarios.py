"""What real programs do across workers that a test of sums alone does not."""

from __future__ import annotations

import gc
import os
import tempfile
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_gc
from tests.multiworker import fit_scenarios
from tf_gc.state.layout import unpack

Weights = list[np.ndarray]
WORDS, CLASSES = 50, 4


def local_components(weights: list[keras.Variable]) -> list[Weights]:
    """The values of some weights, for each replica of this worker."""
    return [
        [c.numpy() for c in components]
        for components in zip(*(w.value.values for w in weights), strict=True)
    ]


def batch_normalization(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """Trains a model with BatchNormalization and looks at it in every way."""
    model = normalized(strategy)
    x, y = fit_scenarios.X, fit_scenarios.Y
    folder = tempfile.mkdtemp()
    path = strategy.write_path(os.path.join(folder, "model.keras"))
    model.save(path)
    return {
        "replicas": local_components(model.weights),
        "weights": model.get_weights(),
        "own output": model(x, training=False).numpy(),
        "predicted": model.predict(x, batch_size=fit_scenarios.BATCH, verbose=0),
        "loss": model.evaluate(x, y, batch_size=fit_scenarios.BATCH, verbose=0),
        "saved": keras.saving.load_model(path).get_weights() if strategy.is_chief else None,
    }


def normalized(strategy: tf.distribute.Strategy) -> keras.Model:
    """A trained model with BatchNormalization."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((8,)),
                keras.layers.Dense(16),
                keras.layers.BatchNormalization(momentum=0.5),
                keras.layers.Dense(3),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss)
    x, y = fit_scenarios.X, fit_scenarios.Y  # of which each worker sees another part
    # A share of 9 is 5 and 4 for two replicas.
    model.fit(x[:90], y[:90], batch_size=18, epochs=2, verbose=0)
    return model


def eager_statistics(strategy: tf.distribute.Strategy) -> list[Weights]:
    """Runs a layer eagerly on batches of zeros, which change one worker's statistics less."""
    with strategy.scope():
        layer = keras.layers.BatchNormalization(momentum=0.5)
        layer.build((None, 3))

    def step() -> None:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        layer(tf.ones([4, 3]) * tf.cast(replica, tf.float32), training=True)

    strategy.run(step)
    return local_components(layer.weights)


def ended_models(strategy: tf.distribute.Strategy) -> list[list[Weights]]:
    """Averages statistics while one worker holds a model that has ended on the other, and later."""
    of_chief = [normalized(strategy)]
    gc.collect()
    if not strategy.is_chief:
        of_chief.clear()
        gc.collect()
    averaged = [eager_statistics(strategy)]
    of_chief.clear()
    gc.collect()
    return [*averaged, eager_statistics(strategy), eager_statistics(strategy)]


def checkpoint_beside_garbage(strategy: tf.distribute.Strategy) -> list[str]:
    """Writes what is kept of a model while one worker has not yet collected an earlier one."""

    def train() -> list[Any]:
        with strategy.scope():
            variable = keras.Variable(np.zeros((64, 64)), name="matrix")
            optimizer = keras.optimizers.SGD(1.0)
            optimizer.build([variable])
        step = lambda: optimizer.apply([tf.ones((64, 64))], [variable])  # noqa: E731
        tf.function(lambda: strategy.run(step))()
        model: list[Any] = [variable, optimizer]
        model.append(model)  # only the garbage collector finds that it has ended
        return model

    models = [train(), train()]
    gc.collect()
    gc.disable()
    del models[0]
    if strategy.is_chief:
        gc.collect()
    state = strategy.compression_state
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(compression=state).write(os.path.join(folder, "checkpoint"))
        data = tf.train.load_checkpoint(path).get_tensor("compression/.ATTRIBUTES/py_state")
    gc.enable()
    return [str(entry.key) for entry in unpack(data)[0] if entry.slot == "residual"]


def embedding(strategy: tf.distribute.Strategy, steps_per_execution: int) -> Weights:
    """Trains an Embedding on sentences whose lengths differ from batch to batch."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Embedding(WORDS, 8),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(64),
                keras.layers.Dense(CLASSES),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss, steps_per_execution=steps_per_execution)
    random = np.random.default_rng(0)
    lengths = random.integers(3, 20, size=12)

    def sentences() -> Any:
        for length in lengths:
            yield random.integers(WORDS, size=(8, length)), random.integers(CLASSES, size=8)

    specs = (tf.TensorSpec((8, None), tf.int64), tf.TensorSpec((8,), tf.int64))
    data = tf.data.Dataset.from_generator(sentences, output_signature=specs)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    model.fit(data.with_options(options), epochs=1, verbose=0)
    return model.get_weights()


def reduced_gradient(strategy: tf.distribute.Strategy) -> Weights:
    """Applies a gradient that was summed before, beside one that was not."""
    with strategy.scope():
        summed, apart = keras.Variable(np.zeros(3)), keras.Variable(np.zeros((64, 64)))
        optimizer = keras.optimizers.SGD(1.0)
        optimizer.build([summed, apart])

    @tf.function
    def step() -> None:
        ones = strategy.run(lambda: tf.ones(3))
        total = strategy.reduce(tf.distribute.ReduceOp.SUM, ones, axis=None)
        strategy.run(lambda: optimizer.apply([total, tf.ones((64, 64))], [summed, apart]))

    step()
    return [summed.numpy(), apart.numpy()]


def embeddings(strategy: tf.distribute.Strategy) -> dict[str, Weights]:
    return {
        "embedding, one step a time": embedding(strategy, 1),
        "embedding, several steps": embedding(strategy, 4),
    }


def programs() -> dict[str, Any]:
    """Runs all programs of this module with the default codec; returns their results by name."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    return {
        "batch_normalization": batch_normalization(strategy),
        "eager_statistics": eager_statistics(strategy),
        "ended_models": ended_models(strategy),
        "checkpoint": checkpoint_beside_garbage(strategy),
        "reduced_gradient": reduced_gradient(strategy),
        **embeddings(strategy),
    }


def programs_without_compression() -> dict[str, Any]:
    """Runs those that are something else without compression."""
    params = {"type": "none"}
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
    return {"normalized": normalized(strategy).get_weights(), **embeddings(strategy)}
