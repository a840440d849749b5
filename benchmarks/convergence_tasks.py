"""What benchmarks/convergence.py trains: data, models, and how good a model is.

All data ships with Python or scikit-learn. Models are small, but their matrices are large enough
to be compressed (`TwoBit.bypass_size`).
"""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from sklearn import datasets

sys.path.append(str(Path(__file__).parents[1] / "examples"))
import train_mnist
import word_language_model as language

Split = tuple[np.ndarray, np.ndarray]
Data = tuple[Split, Split]

# The text of the language models. Rarer words are one word, "unknown".
WORDS, VOCABULARY, WINDOW = 60_000, 1_000, 10
WIDTH = 64  # of the language models

OPTIMIZERS: dict[str, Callable[[float], keras.optimizers.Optimizer]] = {
    "sgd": keras.optimizers.SGD,
    "momentum": lambda rate: keras.optimizers.SGD(rate, momentum=0.9),
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
}
THREE = ("sgd", "momentum", "adam")


@dataclasses.dataclass(frozen=True)
class Metric:
    """What tells how good a model is on the test data, and the bars for compressed training."""

    name: str
    of: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]  # labels, outputs -> scalar
    bar: float
    is_ratio: bool = False  # of perplexities, where less is better; otherwise a difference

    def loss_of_quality(self, value: float, base: float) -> float:
        """Returns how much worse `value` is than `base`, to be compared with `bar`."""
        return value / base - 1 if self.is_ratio else base - value

    def nearly(self, base: float) -> float:
        """Returns 95% of the quality `base`."""
        return base / 0.95 if self.is_ratio else base * 0.95

    def reaches(self, value: float, goal: float) -> bool:
        return value <= goal if self.is_ratio else value >= goal


@dataclasses.dataclass(frozen=True)
class Task:
    """Something to train."""

    load: Callable[[], Data]
    make_model: Callable[[], keras.Model]
    loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]  # labels, outputs -> mean
    metric: Metric
    epochs: int
    batch_size: int  # of all replicas
    evaluate_every: int  # steps
    grids: dict[str, tuple[float, ...]]  # optimizer -> learning rates to choose from


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def squared_error(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.square(labels - outputs))


def accuracy_of(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.cast(tf.argmax(logits, -1, labels.dtype) == labels, tf.float32))


def r_squared_of(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    return 1 - squared_error(labels, outputs) / tf.math.reduce_variance(labels)


ACCURACY = Metric("test accuracy", accuracy_of, bar=0.005)
R_SQUARED = Metric("test R²", r_squared_of, bar=0.005)
PERPLEXITY = Metric(
    "test perplexity", lambda *args: tf.exp(cross_entropy(*args)), bar=0.02, is_ratio=True
)


def split(x: np.ndarray, y: np.ndarray, test: int) -> Data:
    """Returns (train, test) with this many samples for the test, always the same ones."""
    order = np.random.default_rng(0).permutation(len(x))
    return (x[order[test:]], y[order[test:]]), (x[order[:test]], y[order[:test]])


def load_digits() -> Data:
    digits = datasets.load_digits()
    images = (digits.images[..., None] / 16).astype(np.float32)
    return split(images, digits.target.astype(np.int32), test=600)


def load_friedman() -> Data:
    """Returns Friedman's first regression problem (Friedman 1991), with unit noise."""
    x, y = datasets.make_friedman1(4000, n_features=10, noise=1.0, random_state=0)
    targets = ((y - y.mean()) / y.std())[:, None].astype(np.float32)
    return split(x.astype(np.float32), targets, test=1000)


def load_text() -> Data:
    words = language.split_words(language.python_topics())[:WORDS]
    return language.make_sequences(words, language.make_vocabulary(words, VOCABULARY), WINDOW)


def make_regression_model() -> keras.Model:
    layers = [keras.layers.Dense(128, activation="relu") for _ in range(2)]
    return keras.Sequential([keras.Input((10,)), *layers, keras.layers.Dense(1)])


class Positions(keras.layers.Layer):
    """Adds a learned vector for each position."""

    def build(self, shape: tuple[int, ...]) -> None:
        self.vectors = self.add_weight(shape=shape[1:], initializer="glorot_uniform")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs + self.vectors


def make_transformer() -> keras.Model:
    """Returns a transformer encoder of one block that sees the words so far."""
    layers = keras.layers
    words = keras.Input((WINDOW,), dtype="int32")
    x = Positions()(layers.Embedding(VOCABULARY, WIDTH)(words))
    normal = layers.LayerNormalization()(x)
    attention = layers.MultiHeadAttention(num_heads=4, key_dim=WIDTH // 4)
    x = x + attention(normal, normal, use_causal_mask=True)
    hidden = layers.Dense(4 * WIDTH, activation="gelu")(layers.LayerNormalization()(x))
    x = x + layers.Dense(WIDTH)(hidden)
    return keras.Model(words, layers.Dense(VOCABULARY)(layers.LayerNormalization()(x)))


def _digits(network: str, epochs: int) -> Task:
    return Task(
        load=load_digits,
        make_model=lambda: train_mnist.make_model(network, (8, 8, 1)),
        loss=cross_entropy,
        metric=ACCURACY,
        epochs=epochs,
        batch_size=64,
        evaluate_every=6,
        grids={
            "sgd": (0.1, 0.2, 0.5, 1.0),
            "momentum": (0.02, 0.05, 0.1, 0.2),
            "adam": (0.0005, 0.001, 0.002, 0.005),
        },
    )


TASKS = {
    "digits MLP": _digits("mlp", epochs=30),
    "digits CNN": _digits("cnn", epochs=20),
    "regression": Task(
        load=load_friedman,
        make_model=make_regression_model,
        loss=squared_error,
        metric=R_SQUARED,
        epochs=20,
        batch_size=64,
        evaluate_every=10,
        grids={
            "sgd": (0.02, 0.05, 0.1, 0.2),
            "momentum": (0.002, 0.005, 0.01, 0.02),
            "adam": (0.0005, 0.001, 0.002, 0.005),
        },
    ),
    "language LSTM": Task(
        load=load_text,
        make_model=lambda: language.make_model(VOCABULARY, WIDTH, dropout=0, length=WINDOW),
        loss=cross_entropy,
        metric=PERPLEXITY,
        epochs=4,
        batch_size=32,
        evaluate_every=24,
        grids={
            "sgd": (2.0, 5.0, 10.0, 20.0),
            "momentum": (0.2, 0.5, 1.0, 2.0),
            "adam": (0.002, 0.005, 0.01, 0.02),
        },
    ),
    "language transformer": Task(
        load=load_text,
        make_model=make_transformer,
        loss=cross_entropy,
        metric=PERPLEXITY,
        epochs=4,
        batch_size=32,
        evaluate_every=24,
        grids={"adamw": (0.0005, 0.001, 0.002, 0.005)},
    ),
}
