"""Small models, and the rule that training under a strategy is training without one."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.keras.stock import BATCH, data

Strategy = tf.distribute.Strategy
# Trains under a strategy and returns a structure of numbers.
Training = Callable[[Strategy], Any]

X, Y = data(48)
WEIGHTS = np.random.default_rng(11).random(48).astype(np.float32)


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> Any:
        rows = slice(i * BATCH, (i + 1) * BATCH)
        return X[rows], Y[rows]


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
