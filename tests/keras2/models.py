"""What the tests of tf_keras train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from tests.keras.stock import BATCH, CLASSES, FEATURES, data


def fit(
    strategy: tf.distribute.Strategy,
    make_optimizer: Callable[[], Any],
    callbacks: Any = (),
    **options: Any,
) -> Any:
    """Trains a model with dropout-free layers and a BatchNormalization; returns it, with losses."""
    tf_keras.utils.set_random_seed(3)
    with strategy.scope():
        model = tf_keras.Sequential(
            [
                tf_keras.layers.InputLayer((FEATURES,)),
                tf_keras.layers.Dense(16, activation="relu", name="first"),
                tf_keras.layers.BatchNormalization(momentum=0.5),
                tf_keras.layers.Dense(CLASSES, name="second", dtype="float32"),
            ]
        )
        loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(make_optimizer(), loss, metrics=["accuracy"], **options)
    x, y = data()
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True)
    history = model.fit(dataset, epochs=3, verbose=0, callbacks=list(callbacks))
    return model, history.history["loss"]


def bits(model: Any) -> list[bytes]:
    """The bytes of all weights and of what the optimizer keeps."""
    optimizer = model.optimizer
    variables = optimizer.variables
    return [
        np.asarray(v).tobytes()
        for v in [*model.variables, *(variables() if callable(variables) else variables)]
    ]
