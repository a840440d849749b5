"""Tiny models, data and training under stock strategies; does not import tf_gc."""

import dataclasses
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tests.bits import assert_same_bits

Array = npt.NDArray[Any]
Build = Callable[[], keras.Model]
MakeOptimizer = Callable[[], keras.optimizers.Optimizer]

SAMPLES, FEATURES, CLASSES, BATCH = 64, 12, 3, 16

# Renormalizes batches where Keras knows how to: 3.10 does not.
RENORM: dict[str, Any] = (
    {"renorm": True}
    if "renorm" in inspect.signature(keras.layers.BatchNormalization.__init__).parameters
    else {}
)

_collective_key_bases = itertools.count(1 << 24, 1 << 10)


def cpus(replicas: int) -> list[str]:
    return [f"CPU:{i}" for i in range(replicas)]


def stock_strategy(replicas: int = 2) -> tf.distribute.MirroredStrategy:
    """Returns a MirroredStrategy whose collectives do not meet an earlier one's.

    Of datasets without any rewrite, as Keras has them for arrays, its iterators may crash.
    """

    class NumberedMirroredStrategy(tf.distribute.MirroredStrategy):
        _collective_key_base = next(_collective_key_bases)

        def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
            rewritten = tf.data.Options()
            rewritten.experimental_optimization.noop_elimination = True
            return super().experimental_distribute_dataset(dataset.with_options(rewritten), options)

    return NumberedMirroredStrategy(cpus(replicas))


def data(samples: int = SAMPLES) -> tuple[Array, Array]:
    """Returns features and labels that a linear model separates; fewer are the first of more."""
    random = np.random.default_rng(5)
    weights = random.normal(size=(FEATURES, CLASSES))
    x = random.normal(size=(samples, FEATURES)).astype(np.float32)
    return x, (x @ weights).argmax(axis=1).astype(np.int32)


def in_batches(tensors: Any, size: int = BATCH) -> tf.data.Dataset:
    """Batches of rows. TensorFlow may wait a minute for the thread that tunes an unread rest."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return tf.data.Dataset.from_tensor_slices(tensors).batch(size).with_options(options)


def batches(samples: int) -> tf.data.Dataset:
    return in_batches(data(samples))


def mlp(*names: str | None) -> keras.Model:
    """A model that Keras names in each process and each call in another way, unless it gets names.

    They are those of the model and its two layers.
    """
    name, hidden, scores = names or (None, None, None)
    layers = [keras.layers.Dense(16, "relu", name=hidden), keras.layers.Dense(CLASSES, name=scores)]
    return keras.Sequential([keras.Input((FEATURES,)), *layers], name=name)


def named_mlp() -> keras.Model:
    return mlp("named", "hidden", "scores")


def normalized_mlp(*synchronized: bool) -> keras.Model:
    """A model with a normalization for each value; of statistics of its own, or of all replicas."""
    layers = [keras.layers.BatchNormalization(momentum=0.5, synchronized=s) for s in synchronized]
    layers = [keras.layers.Dense(16), *layers, keras.layers.ReLU(), keras.layers.Dense(CLASSES)]
    return keras.Sequential([keras.Input((FEATURES,)), *layers])


def sgd() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.1)


def cross_entropy() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@dataclasses.dataclass
class Run:
    """A model and what training it reported, epoch by epoch."""

    model: keras.Model
    history: dict[str, list[float]]

    @property
    def losses(self) -> list[float]:
        return self.history["loss"]


def compiled(
    strategy: tf.distribute.Strategy,
    build: Build = mlp,
    optimizer: MakeOptimizer = sgd,
    **arguments: Any,
) -> keras.Model:
    """Returns a model made and compiled in the strategy's scope, the same for the same seed."""
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = build()
        settings = {"loss": cross_entropy(), "metrics": ["accuracy"], **arguments}
        model.compile(optimizer(), **settings)
    return model


def fit(
    strategy: tf.distribute.Strategy,
    build: Build = mlp,
    optimizer: MakeOptimizer = sgd,
    epochs: int = 2,
    training_data: tuple[Array, Array] | None = None,
    **arguments: Any,
) -> Run:
    model = compiled(strategy, build, optimizer, **arguments)
    x, y = training_data or data()
    history = model.fit(x, y, batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0)
    return Run(model, history.history)


def assert_same_weights(left: keras.Model, right: keras.Model) -> None:
    """All variables of the models, moving statistics included, to the bit."""
    assert len(left.weights) == len(right.weights) > 0
    for a, b in zip(left.get_weights(), right.get_weights(), strict=True):
        assert_same_bits(a, b)


def assert_same_run(left: Run, right: Run) -> None:
    assert left.history == right.history
    assert_same_weights(left.model, right.model)
