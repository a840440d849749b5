"""What benchmarks/quality.py trains: data, models, and how good a model is.

All data ships with Python or scikit-learn. The models are small, and have matrices that are large
enough to be compressed.
"""

import dataclasses
from collections.abc import Callable

import convergence_tasks as base
import keras
import numpy as np
import tensorflow as tf
from convergence_tasks import Data

layers = keras.layers

CHARACTERS, CHARACTER_WINDOW = 200_000, 32
CONTEXT = 4  # words that the feed-forward language model sees


@dataclasses.dataclass(frozen=True)
class Metric:
    """What tells how good a model is on the test data; less is better for all of them.

    Attributes:
      name: for tables and pictures.
      of: labels and outputs -> scalar.
      bar: how much more compressed training may end with, in units of `unit`.
      relative: whether the bar is a share of the uncompressed value, and not a difference.
    """

    name: str
    of: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    bar: float
    relative: bool

    def worse(self, value: float, baseline: float) -> float:
        """Returns how much worse `value` is than the baseline, to be compared with `bar`."""
        return value / baseline - 1 if self.relative else value - baseline

    def nearly(self, baseline: float) -> float:
        """Returns 95% of the quality of the baseline."""
        return baseline / 0.95 if self.relative else 1 - 0.95 * (1 - baseline)


def error_rate(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return 1 - base.accuracy_of(labels, logits)


def perplexity(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.exp(base.cross_entropy(labels, logits))


ERROR_RATE = Metric("test error rate", error_rate, bar=0.003, relative=False)
PERPLEXITY = Metric("test perplexity", perplexity, bar=0.015, relative=True)
SQUARED_ERROR = Metric("test squared error", base.squared_error, bar=0.02, relative=True)


@dataclasses.dataclass(frozen=True)
class Task:
    """Something to train.

    Attributes:
      load: returns (train, test), each a pair of inputs and labels.
      make_model: returns the model, untrained.
      loss: labels and outputs -> mean.
      metric: what counts.
      epochs: how many.
      batch_size: of all replicas.
      evaluate_every: steps.
    """

    load: Callable[[], Data]
    make_model: Callable[[], keras.Model]
    loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    metric: Metric
    epochs: int
    batch_size: int = 64
    evaluate_every: int = 18


def load_images() -> Data:
    """Returns scikit-learn's digits, and their labels."""
    return base.load_digits()


def load_pixels() -> Data:
    """Returns the digits as vectors, which also are what is to be restored."""
    (train, _), (test, _) = base.load_digits()
    train, test = train.reshape(len(train), -1), test.reshape(len(test), -1)
    return (train, train), (test, test)


def load_characters() -> Data:
    """Returns Python's documentation as sequences, and the same one character further on."""
    text = base.language.python_topics()[:CHARACTERS]
    places = {character: place for place, character in enumerate(sorted(set(text)))}
    numbers = np.array([places[character] for character in text], np.int32)

    def sequences(part: np.ndarray) -> base.Split:
        count = (len(part) - 1) // CHARACTER_WINDOW
        shape = (count, CHARACTER_WINDOW)
        size = count * CHARACTER_WINDOW
        return part[:size].reshape(shape), part[1 : size + 1].reshape(shape)

    cut = len(numbers) * 9 // 10
    return sequences(numbers[:cut]), sequences(numbers[cut:])


def characters() -> int:
    """Returns how many characters there are."""
    return len(set(base.language.python_topics()[:CHARACTERS]))


def load_contexts() -> Data:
    """Returns each word's predecessors, and the word."""
    (train, _), (test, _) = base.load_text()

    def contexts(sequences: np.ndarray) -> base.Split:
        words = sequences.reshape(-1)
        windows = np.lib.stride_tricks.sliding_window_view(words, CONTEXT + 1)[::2]
        return windows[:, :-1].copy(), windows[:, -1].copy()

    return contexts(train), contexts(test)


def make_mlp() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Flatten(),
            layers.Dense(256, activation="relu"),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


def make_cnn(normalized: bool = False) -> keras.Model:
    """Returns a convolutional network, with BatchNormalization over all replicas or without."""
    model = keras.Sequential([keras.Input((8, 8, 1))])
    for filters in (24, 48):
        model.add(layers.Conv2D(filters, 3, padding="same", use_bias=not normalized))
        if normalized:
            model.add(layers.BatchNormalization(momentum=0.9, synchronized=True))
        model.add(layers.ReLU())
        model.add(layers.MaxPooling2D())
    for layer in (layers.Flatten(), layers.Dense(96, activation="relu"), layers.Dense(10)):
        model.add(layer)
    return model


def make_autoencoder() -> keras.Model:
    model = keras.Sequential([keras.Input((64,))])
    for units in (256, 16, 256):
        model.add(layers.Dense(units, activation="relu" if units > 16 else None))
    model.add(layers.Dense(64, activation="sigmoid"))
    return model


def make_mixer() -> keras.Model:
    """Returns an MLP-mixer (Tolstikhin et al. 2021) of two blocks, for patches of 2 × 2 pixels."""
    images = keras.Input((8, 8, 1))
    x = layers.Reshape((16, 64))(layers.Conv2D(64, 2, strides=2)(images))

    def mix(x: keras.KerasTensor, hidden: int, size: int) -> keras.KerasTensor:
        return layers.Dense(size)(layers.Dense(hidden, activation="gelu")(x))

    for _ in range(2):
        patches = layers.Permute((2, 1))(layers.LayerNormalization()(x))
        x = x + layers.Permute((2, 1))(mix(patches, 64, 16))
        x = x + mix(layers.LayerNormalization()(x), 128, 64)
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(images, layers.Dense(10)(x))


def make_gru() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((CHARACTER_WINDOW,), dtype="int32"),
            layers.Embedding(characters(), 32),
            layers.GRU(128, return_sequences=True, unroll=True),
            layers.Dense(characters()),
        ]
    )


def make_lstm() -> keras.Model:
    return base.TASKS["language LSTM"].make_model()


def make_embeddings() -> keras.Model:
    """Returns a feed-forward language model (Bengio et al. 2003)."""
    return keras.Sequential(
        [
            keras.Input((CONTEXT,), dtype="int32"),
            layers.Embedding(base.VOCABULARY, 32),
            layers.Flatten(),
            layers.Dense(96, activation="tanh"),
            layers.Dense(base.VOCABULARY),
        ]
    )


def _of_digits(make_model: Callable[[], keras.Model], epochs: int) -> Task:
    return Task(load_images, make_model, base.cross_entropy, ERROR_RATE, epochs)


def _of_words(make_model: Callable[[], keras.Model], epochs: int) -> Task:
    return Task(
        base.load_text,
        make_model,
        base.cross_entropy,
        PERPLEXITY,
        epochs,
        batch_size=32,
        evaluate_every=24,
    )


TASKS = {
    "MLP": _of_digits(make_mlp, 30),
    "CNN": _of_digits(make_cnn, 20),
    "CNN, normalized": _of_digits(lambda: make_cnn(normalized=True), 16),
    "autoencoder": Task(
        load_pixels, make_autoencoder, base.squared_error, SQUARED_ERROR, epochs=30
    ),
    "mixer": _of_digits(make_mixer, 12),
    "GRU": Task(load_characters, make_gru, base.cross_entropy, PERPLEXITY, 5, evaluate_every=22),
    "LSTM": _of_words(make_lstm, 4),
    "transformer": _of_words(base.make_transformer, 4),
    "embeddings": Task(
        load_contexts, make_embeddings, base.cross_entropy, PERPLEXITY, 2, evaluate_every=42
    ),
}
