"""The tasks of benchmarks/quality.py: data, a model, a loss, and how good a model is."""

import dataclasses
import functools
import math
from collections.abc import Callable

import keras
import quality_data as data
import quality_models as models
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Metric:
    """A measure of how good a model is on the test data; less is better for all of them.

    Attributes:
      name: for tables and pictures.
      of: labels and outputs -> mean over them, scalar.
      bar: how much more compressed training may end with, in units of `unit`.
      relative: whether the bar is a share of the uncompressed value, and not a difference.
      value: what becomes of the mean over all test data.
    """

    name: str
    of: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    bar: float
    relative: bool
    value: Callable[[float], float] = float

    def worse(self, value: float, baseline: float) -> float:
        """Returns how much worse `value` is than the baseline, to be compared with `bar`."""
        return value / baseline - 1 if self.relative else value - baseline

    def nearly(self, baseline: float) -> float:
        """Returns 95% of the quality of the baseline."""
        return baseline / 0.95 if self.relative else 1 - 0.95 * (1 - baseline)


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def squared_error(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.square(labels - outputs))


def error_rate(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.cast(tf.argmax(logits, -1, labels.dtype) != labels, tf.float32))


ERROR_RATE = Metric("test error rate", error_rate, bar=0.003, relative=False)
PERPLEXITY = Metric("test perplexity", cross_entropy, bar=0.015, relative=True, value=math.exp)
SQUARED_ERROR = Metric("test squared error", squared_error, bar=0.02, relative=True)


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
      test_batch: samples that are evaluated at a time, a divisor of all; by default all of them.
    """

    load: Callable[[], data.Data]
    make_model: Callable[[], keras.Model]
    loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    metric: Metric
    epochs: int
    batch_size: int = 64
    evaluate_every: int = 18
    test_batch: int | None = None


def _of_digits(make_model: Callable[[], keras.Model], epochs: int) -> Task:
    return Task(data.load_images, make_model, cross_entropy, ERROR_RATE, epochs)


def _of_pixels(*widths: int) -> Task:
    make_model = functools.partial(models.make_autoencoder, widths)
    return Task(data.load_pixels, make_model, squared_error, SQUARED_ERROR, epochs=30)


def _of_text(
    load: Callable[[], data.Data], make_model: Callable[[], keras.Model], epochs: int, **more: int
) -> Task:
    return Task(load, make_model, cross_entropy, PERPLEXITY, epochs, **more)


_of_words = functools.partial(_of_text, data.load_words, batch_size=32, evaluate_every=24)


def _of_pictures(
    load: Callable[[], data.Data],
    make_model: Callable[[], keras.Model] = models.make_large_cnn,
) -> Task:
    settings = {"epochs": 3, "batch_size": 128, "evaluate_every": 52, "test_batch": 500}
    return Task(load, make_model, cross_entropy, ERROR_RATE, **settings)


TASKS = {
    "MLP": _of_digits(models.make_mlp, 30),
    "CNN": _of_digits(models.make_cnn, 20),
    "CNN, normalized": _of_digits(lambda: models.make_cnn(normalized=True), 16),
    "autoencoder": _of_pixels(256, 16, 256),
    "wide autoencoder": _of_pixels(512, 32, 512),
    "deep autoencoder": _of_pixels(256, 64, 8, 64, 256),
    "mixer": _of_digits(models.make_mixer, 12),
    "GRU": _of_text(data.load_characters, models.make_gru, 5, evaluate_every=22),
    "LSTM": _of_words(models.make_lstm, 4),
    "transformer": _of_words(models.make_transformer, 4),
    "embeddings": _of_text(data.load_contexts, models.make_embeddings, 2, evaluate_every=42),
    "MNIST": _of_pictures(data.load_mnist),
    "Fashion-MNIST": _of_pictures(data.load_fashion),
    "ResNet-20": _of_pictures(data.load_fashion, models.make_resnet),
    "Bible": _of_text(
        data.load_bible, models.make_large_lstm, 1, batch_size=80, evaluate_every=57, test_batch=80
    ),
}
