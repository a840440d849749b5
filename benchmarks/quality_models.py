"""The models that benchmarks/quality.py trains.

They are small, and have matrices that are large enough to be compressed.
"""

import keras
import models as network_models
import quality_data as data
import tensorflow as tf
import train_mnist

layers = keras.layers
WIDTH = 64  # of the LSTM and the transformer


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


def make_autoencoder(widths: tuple[int, ...] = (256, 16, 256)) -> keras.Model:
    """Returns an autoencoder of the digits' pixels, whose narrowest layer is linear."""
    model = keras.Sequential([keras.Input((64,))])
    for units in widths:
        model.add(layers.Dense(units, activation="relu" if units > min(widths) else None))
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
            keras.Input((data.CHARACTER_WINDOW,), dtype="int32"),
            layers.Embedding(data.characters(), 32),
            layers.GRU(128, return_sequences=True, unroll=True),
            layers.Dense(data.characters()),
        ]
    )


def make_lstm() -> keras.Model:
    return data.language.make_model(data.VOCABULARY, WIDTH, dropout=0, length=data.WINDOW)


class Positions(keras.layers.Layer):
    """Adds a learned vector for each position."""

    def build(self, shape: tuple[int, ...]) -> None:
        self.vectors = self.add_weight(shape=shape[1:], initializer="glorot_uniform")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs + self.vectors


def make_transformer() -> keras.Model:
    """Returns a transformer encoder of one block that sees the words so far."""
    words = keras.Input((data.WINDOW,), dtype="int32")
    x = Positions()(layers.Embedding(data.VOCABULARY, WIDTH)(words))
    normal = layers.LayerNormalization()(x)
    attention = layers.MultiHeadAttention(num_heads=4, key_dim=WIDTH // 4)
    x = x + attention(normal, normal, use_causal_mask=True)
    hidden = layers.Dense(4 * WIDTH, activation="gelu")(layers.LayerNormalization()(x))
    x = x + layers.Dense(WIDTH)(hidden)
    return keras.Model(words, layers.Dense(data.VOCABULARY)(layers.LayerNormalization()(x)))


def make_embeddings() -> keras.Model:
    """Returns a feed-forward language model (Bengio et al. 2003)."""
    return keras.Sequential(
        [
            keras.Input((data.CONTEXT,), dtype="int32"),
            layers.Embedding(data.VOCABULARY, 32),
            layers.Flatten(),
            layers.Dense(96, activation="tanh"),
            layers.Dense(data.VOCABULARY),
        ]
    )


def make_large_cnn() -> keras.Model:
    """Returns the convolutional network of examples/train_mnist.py, for 28 × 28 pixels."""
    return train_mnist.make_model("cnn", (28, 28, 1))


def make_resnet() -> keras.Model:
    """Returns ResNet-20 for 28 × 28 pixels, whose layers' statistics follow within few steps."""
    model = network_models.resnet_20((28, 28, 1))
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.9
    return model


def make_large_lstm() -> keras.Model:
    """Returns two layers of 200 units over the words of the Bible."""
    return data.language.make_model(data.BIBLE_VOCABULARY, 200, dropout=0, length=data.BIBLE_WINDOW)
