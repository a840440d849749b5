"""The models of network.py and parameter_server.py, each with a batch of synthetic data.

They differ in what gradient compression depends on: parameters for each second of computing, and
sizes of the tensors.
"""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
from keras import layers


@dataclasses.dataclass(frozen=True)
class Task:
    """A model with a batch to train it on."""

    model: keras.Model  # gives logits [batch, ..., classes]
    x: np.ndarray | list[np.ndarray]  # [batch, ...] each
    y: np.ndarray  # int32 [batch, ...]
    optimizer: Callable[[], keras.optimizers.Optimizer] = lambda: keras.optimizers.SGD(
        1e-3, momentum=0.9
    )


_random = np.random.default_rng(1)


def mlp(batch: int) -> Task:
    """Three hidden layers of 2048: 12.6 million parameters."""
    model = keras.Sequential([keras.Input((2048,))])
    for _ in range(3):
        model.add(layers.Dense(2048, activation="relu"))
    model.add(layers.Dense(10))
    return Task(model, reals(batch, 2048), labels(10, batch))


def lstm(batch: int) -> Task:
    """A language model of 10,000 words, on 20 words: 6.2 million parameters."""
    words = 10_000
    model = keras.Sequential([keras.Input((20,), dtype="int32"), layers.Embedding(words, 256)])
    for _ in range(2):
        model.add(layers.LSTM(256, return_sequences=True))
    model.add(layers.Dense(words))
    return Task(model, labels(words, batch, 20), labels(words, batch, 20))


def transformer(batch: int) -> Task:
    """Two blocks of width 128 that see the words so far, 32 of 5,000: 1.7 million parameters."""
    words, width = 5_000, 128
    inputs = keras.Input((32,), dtype="int32")
    x = layers.Embedding(words, width)(inputs)
    for _ in range(2):
        normal = layers.LayerNormalization()(x)
        x += layers.MultiHeadAttention(4, width // 4)(normal, normal, use_causal_mask=True)
        hidden = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(x))
        x += layers.Dense(width)(hidden)
    model = keras.Model(inputs, layers.Dense(words)(layers.LayerNormalization()(x)))
    return Task(model, labels(words, batch, 32), labels(words, batch, 32))


def prose(batch: int) -> Task:
    """The LSTM on the words of Python's documentation, of which some are frequent."""
    sys.path.append(str(Path(__file__).parents[1] / "examples"))
    import word_language_model as language

    words = language.split_words(language.python_topics())
    (x, y), _ = language.make_sequences(words, language.make_vocabulary(words, 10_000), 20)
    chosen = _random.choice(len(x), batch, replace=False)
    return dataclasses.replace(lstm(batch), x=x[chosen], y=y[chosen])


def vgg(batch: int) -> Task:
    """Three convolutions and two dense layers of 2048, on 32 x 32 pixels: 8.7 million."""
    model = keras.Sequential([keras.Input((32, 32, 3))])
    for filters in (32, 64, 128):
        model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
        model.add(layers.MaxPooling2D())
    model.add(layers.Flatten())
    for _ in range(2):
        model.add(layers.Dense(2048, activation="relu"))
    model.add(layers.Dense(100))
    return Task(model, reals(batch, 32, 32, 3), labels(100, batch))


def resnet(batch: int) -> Task:
    """ResNet-20 (He et al. 2015) on 32 x 32 pixels: 0.27 million parameters."""
    return Task(resnet_20((32, 32, 3)), reals(batch, 32, 32, 3), labels(10, batch))


def resnet_20(shape: tuple[int, int, int]) -> keras.Model:
    inputs = keras.Input(shape)
    x = _convolution(inputs, 16)
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        for block in range(3):
            first = stride if block == 0 else 1
            residual = _convolution(layers.ReLU()(_convolution(x, filters, first)), filters)
            if first > 1:
                x = _convolution(x, filters, first, size=1)
            x = layers.ReLU()(layers.Add()([x, residual]))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def small(batch: int) -> Task:
    """Fifty layers of 14 units: 100 tensors, ten thousand parameters."""
    model = keras.Sequential([keras.Input((14,))])
    for _ in range(50):
        model.add(layers.Dense(14, kernel_initializer="orthogonal"))
    return Task(model, reals(batch, 14), labels(14, batch))


def tiny(batch: int) -> Task:
    """One hidden layer of 256: 19 thousand parameters."""
    model = keras.Sequential([keras.Input((64,)), layers.Dense(256), layers.Dense(10)])
    return Task(model, reals(batch, 64), labels(10, batch))


def recommender(batch: int) -> Task:
    """Two tables of a million rows of 64, and two dense layers, trained by plain SGD.

    The rows of a batch follow Zipf's law, so that some occur many times.
    """
    rows, inputs = 1_000_000, [keras.Input((), dtype="int32") for _ in range(2)]
    x = layers.Concatenate()([layers.Embedding(rows, 64)(each) for each in inputs])
    outputs = layers.Dense(2)(layers.Dense(64, activation="relu")(x))
    indices = [zipf(rows, batch) for _ in inputs]
    model = keras.Model(inputs, outputs)
    return Task(model, indices, labels(2, batch), lambda: keras.optimizers.SGD(1e-3))


def adagrad(batch: int) -> Task:
    """The same, trained by Adagrad."""
    return dataclasses.replace(recommender(batch), optimizer=keras.optimizers.Adagrad)


MODELS: dict[str, Callable[[int], Task]] = {
    builder.__name__: builder
    for builder in (mlp, lstm, transformer, prose, vgg, resnet, small, tiny, recommender, adagrad)
}


def _convolution(x: keras.KerasTensor, filters: int, stride: int = 1, size: int = 3) -> object:
    x = layers.Conv2D(filters, size, stride, padding="same", use_bias=False)(x)
    return layers.BatchNormalization()(x)


def reals(*shape: int) -> np.ndarray:
    return _random.random(shape, dtype=np.float32)


def labels(classes: int, *shape: int) -> np.ndarray:
    return _random.integers(classes, size=shape, dtype=np.int32)


def zipf(rows: int, *shape: int) -> np.ndarray:
    """Returns numbers of rows, of which number k is 1 / (k + 1) times as frequent as number 0."""
    shares = np.cumsum(1 / np.arange(1, rows + 1))
    return np.searchsorted(shares / shares[-1], _random.random(shape)).astype(np.int32)
