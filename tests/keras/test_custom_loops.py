"""Custom training loops: strategy.run with and without a Keras optimizer."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.keras.compressed import NONE, assert_replicas_agree, compressed_strategy
from tests.keras.stock import (
    BATCH,
    CLASSES,
    FEATURES,
    assert_same_weights,
    compiled,
    data,
    stock_strategy,
)

Update = Callable[[keras.Model, list[Any]], None]

RATE = 0.1


def _by_optimizer(model: keras.Model, gradients: list[Any]) -> None:
    model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


def _by_hand(model: keras.Model, gradients: list[Any]) -> None:
    variables = model.trainable_variables
    sums = tf_gc.all_reduce_gradients(zip(gradients, variables, strict=True))
    for total, variable in zip(sums, variables, strict=True):
        variable.value.assign_sub(RATE * total)


class Linear(keras.layers.Layer):
    """A layer whose variables can be assigned to in a replica context."""

    def build(self, input_shape: Any) -> None:
        self.kernel = self.add_weight(shape=(FEATURES, CLASSES), aggregation="mean")
        self.bias = self.add_weight(shape=(CLASSES,), initializer="zeros", aggregation="mean")

    def call(self, inputs: Any) -> Any:
        return tf.matmul(inputs, self.kernel) + self.bias


def _train(strategy: tf.distribute.Strategy, update: Update) -> tuple[keras.Model, list[float]]:
    model = compiled(strategy, lambda: keras.Sequential([keras.Input((FEATURES,)), Linear()]))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    dataset = tf.data.Dataset.from_tensor_slices(data()).batch(BATCH).repeat().take(12)

    def replica_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True)) / BATCH
        update(model, tape.gradient(value, [v.value for v in model.trainable_variables]))
        return value

    @tf.function
    def step(batch: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(replica_step, args=batch), axis=None)

    batches = strategy.experimental_distribute_dataset(dataset)
    return model, [float(step(batch)) for batch in batches]


def test_loops_train_by_an_optimizer_and_by_hand() -> None:
    stock, stock_losses = _train(stock_strategy(), _by_hand)
    same, same_losses = _train(compressed_strategy(params=NONE), _by_hand)
    assert same_losses == stock_losses
    assert_same_weights(same, stock)
    models = []
    for update in (_by_optimizer, _by_hand):
        strategy = compressed_strategy()
        model, losses = _train(strategy, update)
        models.append(model)
        assert losses[0] == stock_losses[0]
        assert np.mean(losses[-4:]) < np.mean(losses[:4])
        assert np.mean(losses[-4:]) == pytest.approx(np.mean(stock_losses[-4:]), rel=0.2)
        assert len(strategy.compression_state) == 2
        assert_replicas_agree(strategy, model.trainable_variables)
    for a, b in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
