"""`clip_after_sum`: any number of replicas clips as one process does on the whole batch."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.keras.compressed import NONE, assert_replicas_agree
from tests.keras.stock import BATCH, CLASSES, SAMPLES, Run, cpus, fit

assert SAMPLES % BATCH == 0  # else the mean over a batch is no sum over replicas

CLIPPING: dict[str, dict[str, float]] = {
    "norm": {"clipnorm": 0.05},
    "global norm": {"global_clipnorm": 0.1},
    "value": {"clipvalue": 0.005},
}
each_clipping = cases("clipping", "global norm", "norm", "value")

# Options that a Keras program may combine with it, and that the stock strategy cannot.
AROUND: dict[str, Any] = {
    **{"gradient_accumulation_steps": 2, "weight_decay": 0.1},
    **{"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 3},
}


def clipping_strategy(replicas: int) -> tf_gc.CompressedMirroredStrategy:
    return tf_gc.CompressedMirroredStrategy(cpus(replicas), NONE, clip_after_sum=True)


def distance_to_alone(mine: Run, **arguments: Any) -> float:
    """How far the weights are from one process's, which trains on whole batches."""
    alone = fit(tf.distribute.get_strategy(), **arguments)
    np.testing.assert_allclose(mine.losses, alone.losses, rtol=1e-4)
    pairs = zip(mine.model.get_weights(), alone.model.get_weights(), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


@each_clipping
def test_training_is_that_of_a_process_alone(clipping: str) -> None:
    def optimizer() -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(0.5, momentum=0.5, **CLIPPING[clipping], **AROUND)

    strategy = clipping_strategy(4)
    arguments = {"optimizer": optimizer, "steps_per_execution": 2}
    mine = fit(strategy, **arguments)
    assert distance_to_alone(mine, **arguments) < 1e-5
    assert_replicas_agree(strategy, mine.model.trainable_variables)
    assert_replicas_agree(strategy, mine.model.optimizer._model_variables_moving_average)


@each_clipping
def test_sparse_gradients_and_scaled_losses_are_clipped_too(clipping: str) -> None:
    def embedding() -> keras.Model:
        layers = [keras.layers.Embedding(20, 8), keras.layers.Flatten()]
        words = keras.Input((4,), dtype="int32")
        return keras.Sequential([words, *layers, keras.layers.Dense(CLASSES)])

    def optimizer() -> keras.optimizers.Optimizer:
        inner = keras.optimizers.SGD(0.5, momentum=0.5, **CLIPPING[clipping])
        return keras.optimizers.LossScaleOptimizer(inner, initial_scale=64.0)

    random = np.random.default_rng(0)
    words = random.integers(20, size=(4 * BATCH, 4)), random.integers(CLASSES, size=4 * BATCH)
    arguments = {"build": embedding, "optimizer": optimizer, "training_data": words}
    assert distance_to_alone(fit(clipping_strategy(2), **arguments), **arguments) < 1e-5


@cases("bad", np.inf, np.nan)
@pytest.mark.parametrize("clipping", CLIPPING)
def test_numbers_that_are_not_finite_do_what_they_do_in_keras(clipping: str, bad: float) -> None:
    gradients = [np.array([1, 2, bad], np.float32), np.array([3, 4], np.float32)]

    def moved(strategy: tf.distribute.Strategy) -> list[Any]:
        with strategy.scope():
            variables = [keras.Variable(np.zeros(g.shape, np.float32)) for g in gradients]
            optimizer = keras.optimizers.SGD(1.0, **CLIPPING[clipping])
            optimizer.build(variables)
        # What is finite is of opposite signs, so that to clip each part would leave nothing.
        shares = [1.5, -0.5] if strategy.num_replicas_in_sync == 2 else [1.0]
        parts = [np.where(np.isfinite(g), np.outer(shares, g), g).astype("f") for g in gradients]

        def step() -> None:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            optimizer.apply([tf.gather(part, replica) for part in parts], variables)

        tf.function(lambda: strategy.run(step))()
        return [variable.numpy() for variable in variables]

    for a, b in zip(moved(clipping_strategy(2)), moved(tf.distribute.get_strategy()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
