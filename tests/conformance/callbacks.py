"""Keras' callbacks see and do what they do without a strategy."""

from typing import Any

import keras
import tensorflow as tf

from tests.conformance.as_alone import Strategy, X, Y, assert_as_alone, fit
from tests.conformance.promise import promise
from tests.keras.stock import BATCH, compiled

VALIDATION = (X[:16], Y[:16])
callbacks = keras.callbacks


def rates_and_stops(strategy: Strategy) -> Any:
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


@promise(on_workers=())
def callbacks_act_as_without_a_strategy(strategy: Strategy) -> None:
    assert_as_alone(strategy, rates_and_stops)


class Events(callbacks.Callback):
    """Notes which method is called, in order."""

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
