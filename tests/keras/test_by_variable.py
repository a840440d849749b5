"""Keras models of which some variables are not compressed, or in another way than the rest."""

from typing import Any

import keras
import numpy as np
import pytest

from tests.keras.compressed import assert_replicas_agree, compressed_strategy
from tests.keras.stock import compiled

WORDS, LENGTH, CLASSES, BATCH = 50, 6, 3, 8


class Subclassed(keras.Model):
    """A model with a model in it."""

    def __init__(self) -> None:
        super().__init__(name="subclassed")
        self.words = keras.layers.Embedding(WORDS, 8)
        self.inner = keras.Sequential(
            [keras.layers.Dense(8, name="up"), keras.layers.BatchNormalization()], name="inner"
        )
        self.attention = keras.layers.MultiHeadAttention(2, 4)
        self.recurrent = keras.layers.Bidirectional(keras.layers.LSTM(4))
        self.scores = keras.layers.Dense(CLASSES)

    def call(self, x: Any) -> Any:
        x = self.words(x)
        x = x + self.inner(x)
        return self.scores(self.recurrent(self.attention(x, x)))


def test_each_layer_may_have_its_own_codec_by_its_path(caplog: pytest.LogCaptureFixture) -> None:
    seen = []

    def note(gradient: Any) -> bool:
        seen.append((gradient.path, gradient.shape))
        return False

    params = {
        "type": "by_variable",
        "rules": {
            note: {"type": "none"},
            "embeddings|batch_norm": {"type": "none"},
            "lstm": {"type": "quantized", "bits": 4, "bypass_size": 0, "warm_up": False},
        },
        "default": {"type": "2bit", "threshold": 0.001},
    }
    strategy = compressed_strategy(params=params)
    model = compiled(strategy, Subclassed)
    random = np.random.default_rng(3)
    x = random.integers(WORDS, size=(4 * BATCH, LENGTH))
    model.fit(x, random.integers(CLASSES, size=4 * BATCH), batch_size=BATCH, epochs=2, verbose=0)
    assert set(seen) == {(v.path, tuple(v.shape)) for v in model.trainable_variables}
    codecs = {
        path: bucket.reducer.name
        for bucket in strategy.schedule.buckets
        for path in bucket.variables
    }
    assert len(codecs) == len(model.trainable_variables) - 3
    for path, codec in codecs.items():
        assert ("4 bits" if "lstm" in path else "2 bits") in codec
    (missed,) = [m for m in caplog.messages if "matches none of" in m]  # though rows are sparse
    assert "note" in missed
    assert_replicas_agree(strategy, model.trainable_variables)
