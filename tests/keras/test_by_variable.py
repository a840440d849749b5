"""Keras models of which some variables are not compressed, or in another way than the rest."""

import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_gc
from tests.cases import cases, matrix
from tests.keras.compressed import assert_replicas_agree, compressed_strategy
from tests.keras.stock import assert_same_bits, stock_strategy

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


def functional() -> keras.Model:
    words = keras.Input((LENGTH,), dtype="int32")
    x = keras.layers.Embedding(WORDS, 8)(words)
    x = keras.layers.LSTM(8)(x)
    x = keras.layers.BatchNormalization()(x)
    inner = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8)], name="inner")
    return keras.Model(words, keras.layers.Dense(CLASSES)(inner(x)), name="outer")


def dense() -> keras.Model:
    words = keras.Input((LENGTH,), dtype="int32")
    x = keras.layers.Flatten()(keras.layers.Embedding(WORDS, 8)(words))
    x = keras.layers.Dense(8, name="outer")(x)
    inner = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8)], name="inner")
    return keras.Model(words, keras.layers.Dense(CLASSES)(inner(x)))


def train(strategy: tf.distribute.Strategy, build: Any, epochs: int = 1) -> keras.Model:
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = build()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss)
    model.fit(X, Y, batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0)
    return model


@cases("build", Residual, functional)
def test_patterns_see_the_paths_of_keras(build: Any) -> None:
    seen = []

    def note(gradient: Any) -> bool:
        seen.append((gradient.path, gradient.shape))
        return False

    def made() -> keras.Model:
        model = build()
        if build is functional:  # a regularizer makes its gradient dense
            for layer in model._flatten_layers():
                if isinstance(layer, keras.layers.Embedding):
                    layer.embeddings_regularizer = keras.regularizers.L2(1e-3)
        return model

    model = train(compressed_strategy(params=tf_gc.Quantized(exclude=note)), made)
    expected = [(v.path, tuple(v.shape)) for v in model.trainable_variables]
    assert len(expected) > 8
    assert set(seen) == set(expected)


@matrix
def test_fit_leaves_out_what_is_excluded() -> None:
    params = tf_gc.TwoBit(1e-6, exclude=["embeddings", r".*/gamma", "^inner/"])
    strategy = compressed_strategy(params=params)
    model = train(strategy, functional)
    assert strategy.schedule is not None
    paths = [variable.path for variable in model.trainable_variables]
    excluded = [path for path in paths if any(w in path for w in ("embeddings", "gamma", "inner"))]
    assert 3 < len(excluded) < len(paths)
    assert list(strategy.schedule.excluded) == excluded
    compressed = [path for bucket in strategy.schedule.buckets for path in bucket.variables]
    assert sorted(compressed) == sorted(set(paths) - set(excluded))
    assert_replicas_agree(strategy, model.trainable_variables)
    assert strategy.traffic is not None
    assert strategy.traffic.excluded_tensors == len(excluded)
    assert strategy.traffic.compressed_tensors == len(compressed)


@matrix
def test_with_everything_excluded_training_is_the_stock_strategys() -> None:
    mine = train(compressed_strategy(params=tf_gc.TwoBit(0.5, exclude=".")), functional)
    stock = train(stock_strategy(), functional)
    for a, b in zip(mine.trainable_variables, stock.trainable_variables, strict=True):
        assert_same_bits(a.numpy(), b.numpy())


def test_each_layer_may_have_its_own_codec() -> None:
    params = {
        "type": "by_variable",
        "rules": {
            "embeddings|batch_norm": {"type": "none"},
            "lstm": {"type": "quantized", "bits": 4, "bypass_size": 0, "warm_up": False},
        },
        "default": {"type": "2bit", "threshold": 0.001},
    }
    strategy = compressed_strategy(params=params)
    model = train(strategy, functional, epochs=2)
    assert strategy.schedule is not None
    codecs = {
        path: bucket.reducer.name
        for bucket in strategy.schedule.buckets
        for path in bucket.variables
    }
    assert len(codecs) == 3 + 4
    for path, codec in codecs.items():
        assert ("four_bit" if "lstm" in path else "two_bit") in codec
    assert_replicas_agree(strategy, model.trainable_variables)


class Stop(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2:
            raise InterruptedError


class Totals(keras.callbacks.Callback):
    """Notes the sums of residuals when training begins, and after its first step."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if not hasattr(self, "first"):
            self.first = self.now()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not hasattr(self, "second"):
            self.second = self.now()

    def now(self) -> dict[str, Any]:
        state = self.model.distribute_strategy.compression_state
        return {v.path: state.total(v.value) for v in self.model.trainable_variables}


# The first one excludes a variable and includes another at the same time.
@cases("before, after", ("inner", "outer"), ((), "inner"), ids=str)
def test_a_backup_restores_whatever_is_excluded(tmp_path: Path, before: Any, after: Any) -> None:
    def continued(exclude: Any, *callbacks: keras.callbacks.Callback) -> tuple[Any, keras.Model]:
        params = tf_gc.TwoBit(bypass_size=0, exclude=exclude)
        strategy = compressed_strategy(params=params)
        keras.utils.set_random_seed(7)
        with strategy.scope():
            model = dense()
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.SGD(0.1), loss)
        backup = tf_gc.keras.BackupAndRestore(tmp_path / "backup")
        try:
            model.fit(
                *(np.tile(X, (5, 1)), np.tile(Y, 5)),
                batch_size=BATCH,
                epochs=3,
                verbose=0,
                callbacks=[backup, *callbacks],
            )
        except InterruptedError:
            shutil.copytree(tmp_path / "backup", tmp_path / "kept")
        return strategy, model

    saved, stopped = continued(before, Stop())
    steps = saved.compression_state.warm_up_steps
    assert 10 <= steps < 40
    totals = Totals()
    resumed, model = continued(after, totals)
    # The warm-up was over, and does not begin again.
    assert resumed.compression_state.warm_up_steps == steps
    for variable, original in zip(
        model.trainable_variables, stopped.trainable_variables, strict=True
    ):
        left = saved.compression_state.total(original.value)
        if left is not None:
            np.testing.assert_allclose(totals.first[variable.path], left, rtol=1e-6, atol=1e-8)
        if after and after in variable.path and left is not None:
            assert left.any()
            assert not totals.second[variable.path].any()  # applied in the first step
