"""Models, layers and metrics that do more than the usual."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tests.conformance.as_alone import BATCH, CLASSES, FEATURES


def two_inputs() -> keras.Model:
    """From a dict of inputs to a dict of outputs."""
    a, b = keras.Input((FEATURES,), name="a"), keras.Input((FEATURES,), name="b")
    hidden = keras.layers.Dense(4)(keras.layers.concatenate([a, b]))
    outputs = {"c": keras.layers.Dense(CLASSES, name="c")(hidden)}
    outputs["d"] = keras.layers.Dense(1, name="d")(hidden)
    return keras.Model({"a": a, "b": b}, outputs)


class WithLoss(keras.layers.Layer):
    """Adds a loss of its own, which a model without targets trains with."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(2)

    def call(self, x: Any) -> Any:
        y = self.dense(x)
        self.add_loss(keras.ops.mean(keras.ops.square(y)))
        return y


class OwnStep(keras.Model):
    """A model with a train_step and a metric of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(CLASSES)
        self.dense.build((None, FEATURES))
        self.mean = keras.metrics.Mean(name="mean")

    def call(self, x: Any) -> Any:
        return self.dense(x)

    @property
    def metrics(self) -> list[Any]:
        return [self.mean]

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            logits = self(x, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            loss = tf.reduce_sum(losses) / BATCH
        variables = self.trainable_variables
        gradients = tape.gradient(loss, [v.value for v in variables])
        self.optimizer.apply(gradients, variables)
        self.mean.update_state(losses)
        return {"mean": self.mean.result()}


class Largest(keras.metrics.Metric):
    """A metric that is not a mean: the count of large logits."""

    def __init__(self, name: str = "largest") -> None:
        super().__init__(name=name)
        self.count = self.add_weight(initializer="zeros", name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        large = keras.ops.cast(y_pred > 0.1, "float32")
        self.count.assign_add(keras.ops.sum(large))

    def result(self) -> Any:
        return self.count
