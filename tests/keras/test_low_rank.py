"""Low rank in `fit`: backups, numbers that are not finite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tf_gc
from tests.cases import matrix
from tests.keras.compressed import compressed_strategy

ROWS, BATCH = 96, 16


def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(ROWS, 128)).astype("f")
    return x, np.argmax(x[:, :4], 1)


def made(optimizer: Callable[[], Any]) -> tuple[Any, keras.Model]:
    strategy = compressed_strategy(2, tf_gc.LowRank(2, warm_up=False))
    keras.utils.set_random_seed(1)
    with strategy.scope():
        hidden = keras.layers.Dense(192, activation="relu", name="hidden")
        layers = [keras.Input((128,)), hidden, keras.layers.Dense(4, name="scores")]
        model = keras.Sequential(layers, name="scored")
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer(), loss)
    return strategy, model


def adam() -> Any:
    return keras.optimizers.Adam(0.003)


def scaled() -> Any:
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01))


def kept(strategy: Any, model: keras.Model) -> tuple[np.ndarray, np.ndarray]:
    """The sum of the residuals of the first kernel, and its factors."""
    (variable, *_) = model.trainable_variables
    entries = strategy.compression_state.entries(variable.value)
    values = {entry.slot: entry.value for entry in entries}
    first, *others = [part.numpy() for part in values["factors"].values]
    for other in others:
        np.testing.assert_array_equal(other, first)
    return strategy.compression_state.total(variable.value), first


class StoppedError(Exception):
    """Stands for what kills a job."""


class _StopAtThird(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2:
            raise StoppedError


class _Look(keras.callbacks.Callback):
    def on_train_begin(self, logs: Any = None) -> None:
        self.seen = self.model.get_weights()


def test_a_backup_goes_on_where_it_was(tmp_path: Path) -> None:
    x, y = data()

    def fit(model: keras.Model, *callbacks: Any, **arguments: Any) -> list[float]:
        settings = {"epochs": 3, "shuffle": False, "verbose": 0, **arguments}
        return model.fit(x, y, BATCH, callbacks=list(callbacks), **settings).history["loss"]

    strategy, model = made(adam)
    with pytest.raises(StoppedError):
        fit(model, tf_gc.keras.BackupAndRestore(tmp_path / "backup"), _StopAtThird())
    total, factors = kept(strategy, model)
    restored, resumed = made(adam)
    look = _Look()
    fit(resumed, tf_gc.keras.BackupAndRestore(tmp_path / "backup"), look)
    for mine, theirs in zip(look.seen, model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    # The last epoch here: equal parts of the residuals, and the factors as they were.
    fit(model, initial_epoch=2)
    mine, theirs = kept(restored, resumed), kept(strategy, model)
    np.testing.assert_allclose(mine[0], theirs[0], atol=1e-4)
    np.testing.assert_allclose(mine[1], theirs[1], atol=1e-3)
    assert np.abs(total).max() > 1e-3
    assert factors.any()


@matrix
def test_a_loss_scale_sees_what_is_not_finite() -> None:
    _, model = made(scaled)
    x, y = data()
    model.fit(x, y, BATCH, verbose=0)
    before = model.get_weights()
    model.fit(np.full_like(x[:BATCH], np.inf), y[:BATCH], BATCH, verbose=0)
    for mine, theirs in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    loss = model.fit(x, y, BATCH, verbose=0).history["loss"]
    assert np.isfinite(loss).all()
