"""Models are built from the first batch, whatever the replicas get of it."""

import keras
import numpy as np
import tensorflow as tf

from tests.keras import compressed, stock

WORDS = ["red", "green", "blue"]


def test_a_batch_may_not_divide_among_the_replicas() -> None:
    strategy = compressed.compressed_strategy(3)  # for which 16 samples are 6, 6 and 4
    run = stock.fit(strategy)
    assert run.losses[-1] < run.losses[0]
    compressed.assert_replicas_agree(strategy, run.model.trainable_variables)


def test_inputs_may_be_strings() -> None:
    def of_words() -> keras.Model:
        words = [keras.Input((2,), dtype="string"), keras.layers.StringLookup(vocabulary=WORDS)]
        rows = [keras.layers.Embedding(len(WORDS) + 1, 8), keras.layers.Flatten()]
        return keras.Sequential([*words, *rows, keras.layers.Dense(len(WORDS))])

    strategy = compressed.compressed_strategy()
    model = stock.compiled(strategy, of_words, lambda: keras.optimizers.SGD(1.0))
    labels = np.random.default_rng(0).integers(len(WORDS), size=64)
    x = np.array([[WORDS[label], "green"] for label in labels])
    data = tf.data.Dataset.from_tensor_slices((x, labels)).batch(stock.BATCH)
    losses = model.fit(data, epochs=2, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
