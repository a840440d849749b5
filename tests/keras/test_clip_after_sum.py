"""`clip_after_sum`: any number of replicas clips as one process does on the whole batch."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases, matrix
from tests.keras.compressed import AUTO, NONE, assert_replicas_agree
from tests.keras.stock import BATCH, CLASSES, SAMPLES, Run, assert_same_run, devices, fit

assert SAMPLES % BATCH == 0  # else the mean over a batch is no sum over replicas

CLIPPING: dict[str, dict[str, float]] = {
    "norm": {"clipnorm": 0.05},
    "global norm": {"global_clipnorm": 0.1},
    "value": {"clipvalue": 0.005},
}
each_clipping = cases("clipping", "global norm", "norm", "value")

# What a Keras program may do around it, and the stock strategy cannot.
AROUND: dict[str, Any] = {
    **{"gradient_accumulation_steps": 2, "weight_decay": 0.1},
    **{"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 3},
}


def strategy_of(
    replicas: int = 2, params: Any = NONE, clip_after_sum: bool = True
) -> tf_gc.CompressedMirroredStrategy:
    return tf_gc.CompressedMirroredStrategy(
        devices(replicas), params, clip_after_sum=clip_after_sum
    )


def sgd(**options: Any) -> Callable[[], keras.optimizers.Optimizer]:
    return lambda: keras.optimizers.SGD(0.5, momentum=0.5, **options)


def alone(**arguments: Any) -> Run:
    """Training in one process, on whole batches."""
    return fit(tf.distribute.get_strategy(), **arguments)


def distance(left: Run, right: Run) -> float:
    pairs = zip(left.model.get_weights(), right.model.get_weights(), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


@each_clipping
def test_training_is_that_of_a_process_alone(clipping: str) -> None:
    arguments = {"optimizer": sgd(**CLIPPING[clipping], **AROUND), "steps_per_execution": 2}
    strategy = strategy_of(4)
    mine, expected = fit(strategy, **arguments), alone(**arguments)
    np.testing.assert_allclose(mine.losses, expected.losses, rtol=1e-5)
    assert distance(mine, expected) < 1e-5
    assert_replicas_agree(strategy, mine.model.trainable_variables)
    assert_replicas_agree(strategy, mine.model.optimizer._model_variables_moving_average)


@matrix
def test_otherwise_replicas_clip_their_own_gradients() -> None:
    clipping = CLIPPING["global norm"]
    expected = alone(optimizer=sgd(**clipping))
    mine = fit(strategy_of(4, NONE, False), optimizer=sgd(**clipping))
    assert distance(mine, expected) > 1e-3
    assert distance(alone(optimizer=sgd()), expected) > 1e-2  # clipping does something


def embedding() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((4,), dtype="int32"),
            keras.layers.Embedding(20, 8),
            keras.layers.Flatten(),
            keras.layers.Dense(CLASSES),
        ]
    )


@each_clipping
def test_sparse_gradients_are_clipped_too(clipping: str) -> None:
    random = np.random.default_rng(0)
    words = random.integers(20, size=(4 * BATCH, 4)), random.integers(CLASSES, size=4 * BATCH)
    arguments = {"build": embedding, "optimizer": sgd(**CLIPPING[clipping]), "training_data": words}
    assert distance(fit(strategy_of(2), **arguments), alone(**arguments)) < 1e-5


@matrix
def test_with_a_scaled_loss() -> None:
    def optimizer() -> keras.optimizers.Optimizer:
        inner = sgd(**CLIPPING["norm"], gradient_accumulation_steps=2)()
        return keras.optimizers.LossScaleOptimizer(inner, initial_scale=64.0)

    strategy = strategy_of(2)
    mine = fit(strategy, optimizer=optimizer)
    assert distance(mine, alone(optimizer=optimizer)) < 1e-5
    assert_replicas_agree(strategy, mine.model.optimizer.variables)


@matrix
@pytest.mark.parametrize(("name", "clipping"), [("AdamW", "norm"), ("Lamb", "value")])
def test_other_optimizers(name: str, clipping: str) -> None:
    def optimizer() -> keras.optimizers.Optimizer:
        return getattr(keras.optimizers, name)(0.01, **CLIPPING[clipping])

    assert distance(fit(strategy_of(2), optimizer=optimizer), alone(optimizer=optimizer)) < 1e-4


@pytest.mark.parametrize("clipping", CLIPPING)
def test_the_decoded_sum_is_what_is_clipped(clipping: str) -> None:
    """With compression, a step of plain SGD moves by no more than the clipped sum."""
    strategy = strategy_of(4, AUTO)
    rate = 0.5
    with strategy.scope():
        variables = [keras.Variable(np.zeros(shape, np.float32)) for shape in ((30, 10), (300,))]
        optimizer = keras.optimizers.SGD(rate, **CLIPPING[clipping])
        optimizer.build(variables)

    def step(number: tf.Tensor) -> None:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        seed = tf.stack([number, replica])
        gradients = [tf.random.stateless_normal(variable.shape, seed) for variable in variables]
        optimizer.apply(gradients, variables)

    run = tf.function(lambda number: strategy.run(step, args=(number,)))
    for number in range(3):
        before = [variable.numpy() for variable in variables]
        run(tf.constant(number))
        moves = [
            np.abs(variable.numpy() - old) / rate
            for variable, old in zip(variables, before, strict=True)
        ]
        norms = [float(np.linalg.norm(move)) for move in moves]
        (limit,) = CLIPPING[clipping].values()
        if clipping == "norm":
            np.testing.assert_allclose(norms, limit, rtol=1e-3)
        elif clipping == "global norm":
            np.testing.assert_allclose(np.linalg.norm(norms), limit, rtol=1e-3)
        else:
            largest = max(float(move.max()) for move in moves)
            np.testing.assert_allclose(largest, limit, rtol=1e-3)
    assert strategy.traffic is not None
    assert strategy.traffic.compressed_tensors == 2
    assert_replicas_agree(strategy, variables)


@matrix
def test_a_single_replica_clips_as_ever() -> None:
    arguments = {"optimizer": sgd(**CLIPPING["global norm"])}
    assert distance(fit(strategy_of(1), **arguments), alone(**arguments)) < 1e-6


@cases("bad", np.nan, np.inf)
@each_clipping
def test_numbers_that_are_not_finite_do_what_they_do_in_keras(clipping: str, bad: float) -> None:
    gradients = [np.array([1, 2, bad], np.float32), np.array([3, 4], np.float32)]

    def moved(strategy: tf.distribute.Strategy) -> list[Any]:
        with strategy.scope():
            variables = [keras.Variable(np.zeros(g.shape, np.float32)) for g in gradients]
            optimizer = keras.optimizers.SGD(1.0, **CLIPPING[clipping])
            optimizer.build(variables)
        share = 1 / strategy.num_replicas_in_sync

        def step() -> None:
            # Not one constant for all replicas, which would count as summed already.
            optimizer.apply([tf.constant(share) * tf.constant(g) for g in gradients], variables)

        tf.function(lambda: strategy.run(step))()
        return [variable.numpy() for variable in variables]

    for a, b in zip(moved(strategy_of(2)), moved(tf.distribute.get_strategy()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@matrix
def test_it_changes_nothing_without_clipping() -> None:
    assert_same_run(fit(strategy_of(2)), fit(strategy_of(2, NONE, False)))


@pytest.mark.parametrize("value", [None, 1, "yes"])
@pytest.mark.parametrize(
    "make", [tf_gc.CompressedMirroredStrategy, tf_gc.CompressedMultiWorkerMirroredStrategy]
)
def test_another_value_is_refused(make: Any, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"clip_after_sum must be True or False, got {value!r}"):
        make(clip_after_sum=value)
