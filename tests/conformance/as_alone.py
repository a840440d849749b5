"""Small models, and the rule that training under a strategy is training without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

Strategy = tf.distribute.Strategy
# Trains under a strategy and returns a structure of numbers.
Training = Callable[[Strategy], Any]

FEATURES, CLASSES, BATCH = 6, 3, 16
_random = np.random.default_rng(11)
X = _random.random((48, FEATURES)).astype(np.float32)
Y = _random.integers(CLASSES, size=48)
WEIGHTS = _random.random(48).astype(np.float32)


def batches(rows: int = len(X)) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X[:rows], Y[:rows])).batch(BATCH)


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> Any:
        rows = slice(i * BATCH, (i + 1) * BATCH)
        return X[rows], Y[rows]


def sequential() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(5, activation="relu"),
            keras.layers.Dense(CLASSES),
        ]
    )


def compiled(
    strategy: Strategy, build: Callable[[], keras.Model] = sequential, **options: Any
) -> keras.Model:
    """Returns a model with the same weights each time."""
    keras.utils.set_random_seed(3)
    settings = {
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "metrics": ["accuracy"],
        **options,
    }
    with strategy.scope():
        model = build()
        model.compile(keras.optimizers.SGD(0.1), **settings)
    return model


def fit(model: keras.Model, x: Any = X, y: Any = Y, **options: Any) -> Any:
    """Returns all that is known after an epoch, or several."""
    arrays = {"batch_size": BATCH} if isinstance(x, np.ndarray | dict | list) else {}
    settings = {"epochs": 1, "shuffle": False, "verbose": 0, **arrays, **options}
    history = model.fit(x, y, **settings).history
    return {"history": history, "weights": model.get_weights()}


def assert_as_alone(strategy: Strategy, training: Training) -> None:
    """A strategy changes nothing but the order of additions."""
    keras.tree.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        training(strategy),
        training(tf.distribute.get_strategy()),
    )
