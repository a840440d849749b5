"""Low rank in `fit`: training, backups, numbers that are not finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tf_gc
from tests.cases import matrix
from tests.keras.compressed import assert_replicas_agree, compressed_strategy

STEPS = 6
PARAMS = tf_gc.LowRank(2, warm_up=False)


def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(STEPS * 16, 128)).astype("f")
    return x, np.argmax(x[:, :4], 1)


def model_of(strategy: Any, optimizer: Any = None) -> keras.Model:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((128,)),
                keras.layers.Dense(192, activation="relu", name="hidden"),
                keras.layers.Dense(4, name="scores"),
            ],
            name="scored",
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer or keras.optimizers.Adam(0.003), loss)
    return model


def kept(strategy: Any, model: keras.Model) -> tuple[np.ndarray, np.ndarray]:
    """The sum of the residuals of the first kernel, and its factors."""
    (variable, *_) = model.trainable_variables
    entries = strategy.compression_state.entries(variable.value)
    values = {entry.slot: entry.value for entry in entries}
    first, *others = [part.numpy() for part in values["factors"].values]
    for other in others:
        np.testing.assert_array_equal(other, first)
    return strategy.compression_state.total(variable.value), first


@matrix
def test_a_model_trains() -> None:
    strategy = compressed_strategy(2, tf_gc.LowRank(2))
    model = model_of(strategy)
    history = model.fit(*data(), batch_size=16, epochs=10, verbose=0).history["loss"]
    assert history[-1] < 0.3 * history[0]
    said = str(strategy.schedule)
    assert "factors of rank 2, all_reduce, float32: scored/hidden/kernel" in said
    assert strategy.compression_state.warm_up_steps < 60
    assert_replicas_agree(strategy, model.trainable_variables)


class StoppedError(Exception):
    """Stands for what kills a job."""


class _StopAtThird(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2:
            raise StoppedError


def test_a_backup_goes_on_where_it_was(tmp_path: Path) -> None:
    x, y = data()

    def make() -> tuple[Any, keras.Model]:
        strategy = compressed_strategy(2, PARAMS)
        return strategy, model_of(strategy)

    def fit(model: keras.Model, *callbacks: Any, **arguments: Any) -> None:
        model.fit(
            *(x, y), batch_size=16, epochs=3, shuffle=False, verbose=0,
            callbacks=list(callbacks), **arguments,
        )  # fmt: skip

    strategy, model = make()
    with pytest.raises(StoppedError):
        fit(model, tf_gc.keras.BackupAndRestore(tmp_path / "backup"), _StopAtThird())
    seen: list[Any] = []

    class Look(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            seen.append(self.model.get_weights())

    total, factors = kept(strategy, model)
    restored, resumed = make()
    fit(resumed, tf_gc.keras.BackupAndRestore(tmp_path / "backup"), Look())
    for mine, theirs in zip(seen[0], model.get_weights(), strict=True):
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
    strategy = compressed_strategy(2, PARAMS)
    inner = keras.optimizers.SGD(0.01)
    model = model_of(strategy, keras.optimizers.LossScaleOptimizer(inner))
    x, y = data()
    model.fit(x, y, batch_size=16, epochs=1, verbose=0)
    before = model.get_weights()
    x[:] = np.inf
    model.fit(x[:16], y[:16], batch_size=16, epochs=1, verbose=0)
    for mine, theirs in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    x, y = data()
    loss = model.fit(x, y, batch_size=16, epochs=1, verbose=0).history["loss"]
    assert np.isfinite(loss).all()
