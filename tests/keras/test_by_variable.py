"""Keras models of which some variables are not compressed, or in another way than the rest."""

import contextlib
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tf_gc
from tests.cases import cases
from tests.keras.compressed import assert_replicas_agree, compressed_strategy

WORDS, LENGTH, CLASSES, BATCH = 50, 6, 3, 8

_random = np.random.default_rng(3)
X = _random.integers(WORDS, size=(4 * BATCH, LENGTH))
Y = _random.integers(CLASSES, size=4 * BATCH)


class Residual(keras.Model):
    """A subclassed model with a model in it."""

    def __init__(self) -> None:
        super().__init__(name="residual")
        self.words = keras.layers.Embedding(WORDS, 8)
        self.inner = keras.Sequential(
            [keras.layers.Dense(8, name="up"), keras.layers.BatchNormalization()], name="inner"
        )
        self.attention = keras.layers.MultiHeadAttention(2, 4)
        self.recurrent = keras.layers.Bidirectional(keras.layers.GRU(4))
        self.scores = keras.layers.Dense(CLASSES)

    def call(self, x: Any) -> Any:
        x = self.words(x)
        x = x + self.inner(x)
        return self.scores(self.recurrent(self.attention(x, x)))


def functional(*hidden: keras.layers.Layer) -> keras.Model:
    words = keras.Input((LENGTH,), dtype="int32")
    x = keras.layers.Embedding(WORDS, 8)(words)
    for layer in hidden:
        x = layer(x)
    inner = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8)], name="inner")
    return keras.Model(words, keras.layers.Dense(CLASSES)(inner(x)))


def compiled(strategy: Any, build: Any) -> keras.Model:
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = build()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss)
    return model


def test_patterns_see_the_paths_of_keras() -> None:
    seen = []

    def note(gradient: Any) -> bool:
        seen.append((gradient.path, gradient.shape))
        return False

    model = compiled(compressed_strategy(params=tf_gc.Quantized(exclude=note)), Residual)
    model.fit(X, Y, batch_size=BATCH, verbose=0)
    expected = [(v.path, tuple(v.shape)) for v in model.trainable_variables]
    assert len(expected) > 8
    assert set(seen) == set(expected)


def test_each_layer_may_have_its_own_codec(caplog: pytest.LogCaptureFixture) -> None:
    params = {
        "type": "by_variable",
        "rules": {
            "embeddings|batch_norm": {"type": "none"},
            "lstm": {"type": "quantized", "bits": 4, "bypass_size": 0, "warm_up": False},
        },
        "default": {"type": "2bit", "threshold": 0.001},
    }
    strategy = compressed_strategy(params=params)
    model = compiled(
        strategy, lambda: functional(keras.layers.LSTM(8), keras.layers.BatchNormalization())
    )
    model.fit(X, Y, batch_size=BATCH, epochs=2, verbose=0)
    assert strategy.schedule is not None
    codecs = {
        path: bucket.reducer.name
        for bucket in strategy.schedule.buckets
        for path in bucket.variables
    }
    assert len(codecs) == 3 + 4
    for path, codec in codecs.items():
        assert ("four_bit" if "lstm" in path else "two_bit") in codec
    assert not [m for m in caplog.messages if "matches none of" in m]  # though rows are sparse
    assert_replicas_agree(strategy, model.trainable_variables)


class Totals(keras.callbacks.Callback):
    """Notes the sums of residuals when training begins and after its first step."""

    stops = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if not hasattr(self, "first"):
            self.first = self.now()
        if self.stops and epoch == 2:
            raise InterruptedError

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not hasattr(self, "second"):
            self.second = self.now()

    def now(self) -> dict[str, Any]:
        state = self.model.distribute_strategy.compression_state
        return {v.path: state.total(v.value) for v in self.model.trainable_variables}


# The first one excludes a variable and includes another at the same time.
@cases("before, after", ("inner", "outer"), ((), "inner"), ids=str)
def test_a_backup_restores_whatever_is_excluded(tmp_path: Path, before: Any, after: Any) -> None:
    def continued(exclude: Any, stops: bool) -> tuple[Any, Totals]:
        strategy = compressed_strategy(params=tf_gc.TwoBit(bypass_size=0, exclude=exclude))
        outer = keras.layers.Dense(8, name="outer")
        model = compiled(strategy, lambda: functional(keras.layers.Flatten(), outer))
        totals = Totals()
        totals.stops = stops
        with contextlib.suppress(InterruptedError):
            model.fit(
                *(np.tile(X, (5, 1)), np.tile(Y, 5)),
                batch_size=BATCH,
                epochs=3,
                verbose=0,
                callbacks=[tf_gc.keras.BackupAndRestore(tmp_path / "backup"), totals],
            )
        return strategy, totals

    saved, stopped = continued(before, stops=True)
    steps = saved.compression_state.warm_up_steps
    assert 10 <= steps < 40
    resumed, totals = continued(after, stops=False)
    # The warm-up was over, and does not begin again.
    assert resumed.compression_state.warm_up_steps == steps
    pairs = zip(totals.first.items(), stopped.now().values(), strict=True)
    for (path, restored), left in [pair for pair in pairs if pair[1] is not None]:
        np.testing.assert_allclose(restored, left, rtol=1e-6, atol=1e-8)
        if after in path:
            assert left.any()
            assert not totals.second[path].any()  # applied in the first step
