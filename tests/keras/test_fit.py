"""fit, evaluate and predict, in the ways in which users call them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import cases, matrix
from tests.keras.compressed import NONE, assert_trains_compressed, compressed_strategy
from tests.keras.flavour import keras
from tests.keras.stock import (
    BATCH,
    Run,
    assert_same_bits,
    assert_same_run,
    compiled,
    data,
    stock_strategy,
)

pytestmark = [pytest.mark.flavours, pytest.mark.optimized_graphs]

FitWay = Callable[[keras.Model], keras.callbacks.History]
EPOCHS = 2


def _arrays(model: keras.Model) -> keras.callbacks.History:
    """Batches of 20, 20, 20 and 1: in the last one a replica has no sample at all."""
    x, y = data()
    return model.fit(
        *(x[:61], y[:61]),
        batch_size=20,
        epochs=EPOCHS,
        validation_data=data(24),
        validation_batch_size=24,
        class_weight={0: 1.0, 1: 3.0, 2: 0.25},
        verbose=0,
    )


def _dataset(model: keras.Model) -> keras.callbacks.History:
    dataset = tf.data.Dataset.from_tensor_slices(data()).shuffle(64, seed=3).batch(BATCH).repeat()
    return model.fit(dataset, steps_per_epoch=4, epochs=EPOCHS, verbose=0)


@cases("way", _arrays, _dataset, ids=lambda way: way.__name__[1:])
def test_fit_works_as_under_the_stock_strategy(way: FitWay) -> None:
    strategy = compressed_strategy()
    runs = []
    for each in (strategy, compressed_strategy(params=NONE), stock_strategy()):
        model = compiled(each)
        runs.append(Run(model, way(model).history))
    compressed, uncompressed, expected = runs
    assert len(expected.losses) == EPOCHS
    assert_same_run(uncompressed, expected)
    assert_trains_compressed(strategy, compressed, like=expected)

    # With the same weights; 61 samples do not divide into batches of 24, nor by 2.
    expected.model.set_weights(compressed.model.get_weights())
    x, y = data()
    evaluated, predicted = [], []
    for run in (compressed, expected):
        evaluated.append(run.model.evaluate(x[:61], y[:61], batch_size=24, verbose=0))
        predicted.append(run.model.predict(x[:61], batch_size=24, verbose=0))
    assert evaluated[0] == evaluated[1]
    assert predicted[0].shape == (61, 3)
    assert_same_bits(*predicted)


@matrix
def test_run_eagerly_trains_as_a_graph_does() -> None:
    strategies = [compressed_strategy(), compressed_strategy()]
    runs = []
    for strategy, run_eagerly in zip(strategies, [True, False], strict=True):
        model = compiled(strategy, run_eagerly=run_eagerly)
        x, y = data(2 * BATCH)
        history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
        runs.append(Run(model, history.history))
    eager, graph = runs
    np.testing.assert_allclose(eager.losses, graph.losses, rtol=1e-4)
    for a, b in zip(eager.model.get_weights(), graph.model.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    assert len(strategies[0].compression_state) == len(strategies[1].compression_state) == 4
    assert eager.losses[-1] < eager.losses[0]


@matrix
def test_run_eagerly_without_compression_equals_stock_to_the_bit() -> None:
    runs = []
    for strategy in (compressed_strategy(params=NONE), stock_strategy()):
        model = compiled(strategy, run_eagerly=True)
        runs.append(Run(model, model.fit(*data(BATCH), BATCH, epochs=2, verbose=0).history))
    assert_same_run(*runs)


@matrix
def test_callbacks_stop_and_save_and_change_the_learning_rate(tmp_path: Path) -> None:
    path = str(tmp_path / "best.keras")
    model = compiled(compressed_strategy())
    history = model.fit(
        *data(),
        batch_size=BATCH,
        epochs=8,
        validation_data=data(24),
        callbacks=[
            keras.callbacks.ModelCheckpoint(path, save_best_only=True),
            keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True),
            # With these rates training stands still from the third epoch on.
            keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 if epoch < 3 else 0.0),
        ],
        verbose=0,
    )
    losses = history.history["val_loss"]
    assert len(losses) == 5  # three that improve, two that do not
    assert losses[2] == min(losses) == losses[4]
    rates = history.history.get("learning_rate") or history.history["lr"]
    assert rates[-1] == 0.0
    saved = keras.models.load_model(path)
    for a, b in zip(saved.get_weights(), model.get_weights(), strict=True):
        assert_same_bits(a, b)
