"""Programs that broke other strategies, run by two workers with two replicas each."""

from __future__ import annotations

import gc
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.keras.stock import assert_same_bits
from tests.multiworker import cluster
from tests.multiworker.fit_scenarios import BATCH, X, Y
from tf_gc.state.layout import unpack

pytestmark = pytest.mark.multiworker

Weights = list[np.ndarray]
WORDS, CLASSES = 50, 4


def local_components(weights: list[keras.Variable]) -> list[Weights]:
    """The values of some weights, for each replica of this worker."""
    return [
        [c.numpy() for c in components]
        for components in zip(*(w.value.values for w in weights), strict=True)
    ]


def compiled(strategy: tf.distribute.Strategy, *layers: Any, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([make() for make in layers])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss, **options)
    return model


def normalized(strategy: tf.distribute.Strategy) -> keras.Model:
    """A trained model with BatchNormalization, of which each worker has seen another part."""
    model = compiled(
        strategy,
        lambda: keras.Input((8,)),
        lambda: keras.layers.Dense(16),
        lambda: keras.layers.BatchNormalization(momentum=0.5),
        lambda: keras.layers.Dense(3),
    )
    # A share of 9 is 5 and 4 for two replicas.
    model.fit(X[:90], Y[:90], batch_size=18, epochs=2, verbose=0)
    return model


def batch_normalization(strategy: tf.distribute.Strategy, folder: str) -> dict[str, Any]:
    """Trains a model with BatchNormalization and looks at it in every way."""
    model = normalized(strategy)
    path = strategy.write_path(f"{folder}/model.keras")
    model.save(path)
    return {
        "replicas": local_components(model.weights),
        "weights": model.get_weights(),
        "own output": model(X, training=False).numpy(),
        "predicted": model.predict(X, batch_size=BATCH, verbose=0),
        "loss": model.evaluate(X, Y, batch_size=BATCH, verbose=0),
        "saved": keras.saving.load_model(path).get_weights() if strategy.is_chief else None,
    }


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


def checkpoint_beside_garbage(strategy: tf.distribute.Strategy, folder: str) -> list[str]:
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
    path = strategy.write_path(f"{folder}/checkpoint")
    path = tf.train.Checkpoint(compression=state).write(path)
    data = tf.train.load_checkpoint(path).get_tensor("compression/.ATTRIBUTES/py_state")
    gc.enable()
    return [str(entry.key) for entry in unpack(data)[0] if entry.slot == "residual"]


def embedding(strategy: tf.distribute.Strategy, steps_per_execution: int) -> Weights:
    """Trains an Embedding on sentences whose lengths differ from batch to batch."""
    model = compiled(
        strategy,
        lambda: keras.layers.Embedding(WORDS, 8),
        lambda: keras.layers.GlobalAveragePooling1D(),
        lambda: keras.layers.Dense(64),
        lambda: keras.layers.Dense(CLASSES),
        steps_per_execution=steps_per_execution,
    )
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


def programs(folder: str) -> dict[str, Any]:
    """Runs all programs of this module with the default codec; returns their results by name."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    return {
        "batch_normalization": batch_normalization(strategy, folder),
        "eager_statistics": eager_statistics(strategy),
        "ended_models": ended_models(strategy),
        "checkpoint": checkpoint_beside_garbage(strategy, folder),
        "reduced_gradient": reduced_gradient(strategy),
        "one step a time": embedding(strategy, 1),
        "several steps": embedding(strategy, 4),
    }


Results = list[dict[str, Any]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Of each of the two workers."""
    folder = str(tmp_path_factory.mktemp("programs"))
    return cluster.values(programs, folder, devices=2, optimized=True)


def assert_same(left: Any, right: Any) -> None:
    for a, b in zip(left, right, strict=True):
        assert_same_bits(a, b)


def test_batch_normalization_leaves_one_model_on_all_workers(results: Results) -> None:
    first, second = (result["batch_normalization"] for result in results)
    for worker in first, second:
        assert len(worker["replicas"]) == 2
        for replica in worker["replicas"]:
            assert_same(replica, first["weights"])
        assert_same(worker["weights"], first["weights"])
        np.testing.assert_allclose(worker["predicted"], worker["own output"], rtol=1e-5, atol=1e-6)
        assert worker["loss"] == first["loss"]
    assert_same(first["saved"], first["weights"])
    assert second["saved"] is None


@pytest.mark.parametrize("run", [0, 1, 2])
def test_a_model_that_has_ended_on_one_worker_only_is_in_nobodys_way(
    results: Results, run: int
) -> None:
    replicas = [replica for worker in results for replica in worker["ended_models"][run]]
    for replica in replicas:
        assert_same(replica, results[0]["eager_statistics"][0])


def test_a_checkpoint_has_no_garbage(results: Results) -> None:
    first, second = (result["checkpoint"] for result in results)
    assert first == second
    assert len(first) == 1


def test_statistics_of_eager_steps_are_averaged_whatever_their_values(results: Results) -> None:
    replicas = [replica for worker in results for replica in worker["eager_statistics"]]
    assert len(replicas) == 4
    for _, _, mean, variance in replicas:
        # Of zeros in the first replica, ones in the second, and so on.
        np.testing.assert_allclose(mean, np.full(3, 0.75), rtol=1e-6)
        np.testing.assert_allclose(variance, np.full(3, 0.5), rtol=1e-6)


def test_sentences_may_differ_in_length_within_an_execution(results: Results) -> None:
    for worker in results:
        assert_same(worker["several steps"], worker["one step a time"])
        assert_same(worker["several steps"], results[0]["several steps"])


def test_local_replicas_apply_a_reduced_gradient_once(results: Results) -> None:
    for worker in results:
        summed, apart = worker["reduced_gradient"]
        np.testing.assert_array_equal(summed, np.full(3, -4.0))
        np.testing.assert_array_equal(apart, np.full((64, 64), -4.0))
