"""Programs that broke other strategies, run by two workers with two replicas each."""

import gc
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.bits import assert_same_bits
from tests.keras.stock import BATCH, compiled, data, normalized_mlp
from tests.multiworker import cluster
from tests.state.checkpoints import values_in

pytestmark = pytest.mark.multiworker

Weights = list[np.ndarray]

X, Y = data(96)


def local_components(weights: list[keras.Variable]) -> list[Weights]:
    """The values of some weights, for each replica of this worker."""
    return [
        [c.numpy() for c in components]
        for components in zip(*(w.value.values for w in weights), strict=True)
    ]


def normalized(strategy: tf.distribute.Strategy) -> keras.Model:
    """A trained model with BatchNormalization, of which each worker has seen another part."""
    model = compiled(strategy, lambda: normalized_mlp(False))
    # A share of 9 is 5 and 4 for two replicas.
    model.fit(X[:90], Y[:90], batch_size=18, epochs=2, verbose=0)
    return model


def looks(model: keras.Model) -> dict[str, Any]:
    return {
        "replicas": local_components(model.weights),
        "weights": model.get_weights(),
        "own output": model(X, training=False).numpy(),
        "predicted": model.predict(X, batch_size=BATCH, verbose=0),
        "loss": model.evaluate(X, Y, batch_size=BATCH, verbose=0),
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


def ended_models(strategy: tf.distribute.Strategy, models: list[Any]) -> list[list[Weights]]:
    """Averages statistics while the chief holds a model that has ended on the other, and later."""
    gc.collect()
    if not strategy.is_chief:
        models.clear()
        gc.collect()
    averaged = [eager_statistics(strategy)]
    models.clear()
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
    gc.enable()
    return [name for name in values_in(path) if name.startswith("residual")]


def programs(folder: str) -> dict[str, Any]:
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    models = [normalized(strategy)]
    return {
        "batch_normalization": looks(models[0]),
        "eager_statistics": eager_statistics(strategy),
        "ended_models": ended_models(strategy, models),
        "checkpoint": checkpoint_beside_garbage(strategy, folder),
    }


Results = list[dict[str, Any]]  # of each of the two workers


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = str(tmp_path_factory.mktemp("programs"))
    return cluster.values(programs, folder, devices=2, optimized=True)


def assert_all_same_bits(left: Any, right: Any) -> None:
    for a, b in zip(left, right, strict=True):
        assert_same_bits(a, b)


def test_batch_normalization_leaves_one_model_on_all_workers(results: Results) -> None:
    first, second = (result["batch_normalization"] for result in results)
    for worker in first, second:
        assert len(worker["replicas"]) == 2
        for replica in worker["replicas"]:
            assert_all_same_bits(replica, first["weights"])
        assert_all_same_bits(worker["weights"], first["weights"])
        np.testing.assert_allclose(worker["predicted"], worker["own output"], rtol=1e-5, atol=1e-6)
        assert worker["loss"] == first["loss"]


def test_a_model_that_has_ended_on_one_worker_only_is_in_nobodys_way(results: Results) -> None:
    for worker in results:
        for of_run in worker["ended_models"]:
            for replica in of_run:
                assert_all_same_bits(replica, results[0]["eager_statistics"][0])


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
