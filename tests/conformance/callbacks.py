"""Keras' callbacks see and do what they do without a strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.conformance.as_alone import (
    BATCH,
    CLASSES,
    Strategy,
    Training,
    X,
    Y,
    assert_as_alone,
    compiled,
    fit,
)
from tests.conformance.promise import promise, wait_for_all

VALIDATION = (X[:16], Y[:16])
callbacks = keras.callbacks


def rates_and_stops(strategy: Strategy, folder: Path) -> Any:
    """Callbacks that change the training itself."""
    stop = callbacks.EarlyStopping("val_loss", min_delta=1e6, patience=1, restore_best_weights=True)
    plateau = callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=1e6)
    schedule = callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
    model = compiled(strategy)
    results = {}
    for name, own in {"stops": [schedule, stop], "rates": [plateau]}.items():
        keras.utils.set_random_seed(1)
        results[name] = fit(model, epochs=3, validation_data=VALIDATION, callbacks=own)
        results[name]["rate"] = model.optimizer.learning_rate.numpy()
    results["stopped"] = stop.stopped_epoch
    return results


class Events(callbacks.Callback):
    """Notes which method is called, in order, with the names of the logs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        attribute = super().__getattribute__(name)
        if name.startswith("on_"):
            return lambda *args, **_: self.seen.append(
                f"{name} {[a for a in args if isinstance(a, int)]}"
            )
        return attribute


def events(strategy: Strategy) -> list[str]:
    own, epochs, model = Events(), [], compiled(strategy)
    counted = callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: epochs.append(epoch))
    fit(model, epochs=2, validation_data=VALIDATION, callbacks=[own, counted])
    model.evaluate(*VALIDATION, batch_size=BATCH, verbose=0, callbacks=[own])
    model.predict(X, batch_size=BATCH, verbose=0, callbacks=[own])
    assert epochs == [0, 1]
    return own.seen


@promise(broken_by_stock="workers")
def callbacks_are_called_in_the_same_order(strategy: Strategy) -> None:
    assert events(strategy) == events(tf.distribute.get_strategy())


def moving_average(strategy: Strategy, folder: Path) -> Any:
    def optimizer() -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.9)

    model = compiled(strategy, optimizer=optimizer)
    swap = callbacks.SwapEMAWeights(swap_on_epoch=True)
    return fit(model, epochs=2, validation_data=VALIDATION, callbacks=[swap])


TRAININGS: dict[str, Training] = {
    "rates and stops": rates_and_stops,
    "moving average": moving_average,
}


@promise(each=TRAININGS, broken_by_stock="workers")
def callbacks_act_as_without_a_strategy(strategy: Strategy, name: str, folder: Path) -> None:
    assert_as_alone(strategy, TRAININGS[name], folder)


@promise(broken_by_stock="workers")
def training_stops_at_a_bad_number(strategy: Strategy) -> None:
    """On all workers, also if but one of the replicas has it."""
    x = X.copy()
    x[BATCH + 1] = np.nan
    seen: list[int] = []
    notes = callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(batch))
    linear = compiled(strategy, lambda: keras.Sequential([keras.layers.Dense(CLASSES)]))
    fit(linear, x, epochs=2, callbacks=[callbacks.TerminateOnNaN(), notes])
    assert seen == [0, 1]


@promise(broken_by_stock="workers")
def callbacks_write_files_once(strategy: Strategy, folder: Path) -> None:
    """The files are the ones that one process writes; of several workers, the chief writes."""
    model = compiled(strategy)
    history = fit(
        model,
        epochs=2,
        validation_data=VALIDATION,
        callbacks=[
            callbacks.CSVLogger(str(folder / "log.csv")),
            callbacks.ModelCheckpoint(str(folder / "model{epoch}.keras")),
            callbacks.ModelCheckpoint(str(folder / "best.weights.h5"), save_weights_only=True),
            callbacks.TensorBoard(str(folder / "board"), write_graph=False),
        ],
    )["history"]
    wait_for_all(strategy)
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["best.weights.h5", "board", "log.csv", "model1.keras", "model2.keras"]
    lines = (folder / "log.csv").read_text().split()
    assert len(lines) == 1 + 2
    logged = dict(zip(lines[0].split(","), map(float, lines[-1].split(",")), strict=True))
    for name, values in history.items():
        np.testing.assert_allclose(logged[name], values[-1], rtol=1e-6)
    for kind in ("train", "validation"):
        assert len(list((folder / "board" / kind).glob("events.*"))) == 1
    with strategy.scope():
        loaded = keras.saving.load_model(folder / "model2.keras")
    other = compiled(strategy)
    other.load_weights(folder / "best.weights.h5")
    for restored in (loaded, other):
        for a, b in zip(restored.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)
    wait_for_all(strategy)


class _StopError(Exception):
    pass


@promise(broken_by_stock="workers")
def a_backup_goes_on_where_training_ended(strategy: Strategy, folder: Path) -> None:
    def stop(epoch: int, logs: Any) -> None:
        if epoch == 1:
            raise _StopError

    backup = str(folder / "backup")
    interrupted = compiled(strategy)
    try:
        fit(
            interrupted,
            epochs=3,
            callbacks=[
                callbacks.BackupAndRestore(backup),
                callbacks.LambdaCallback(on_epoch_begin=stop),
            ],
        )
    except _StopError:
        pass
    else:
        raise AssertionError("training was not interrupted")
    wait_for_all(strategy)
    resumed = fit(compiled(strategy), epochs=3, callbacks=[callbacks.BackupAndRestore(backup)])
    expected = fit(compiled(strategy), epochs=3)
    assert len(resumed["history"]["loss"]) == 2
    for a, b in zip(resumed["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
