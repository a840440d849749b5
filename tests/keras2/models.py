"""The models that the tests of tf_keras train."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras

import tf_gc
from tests.keras.stock import CLASSES, FEATURES, SAMPLES, batches


class StopAtThird(tf_keras.callbacks.Callback):
    """Ends training as a job that is killed at the begin of the third epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2:
            raise InterruptedError


class State(NamedTuple):
    weights: list[bytes]
    totals: list[Any]  # what was not sent of each variable


class Recorder(tf_keras.callbacks.Callback):
    """Notes the state at the begin and at the end of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.begins: list[State] = []
        self.ends: list[State] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.begins.append(self._state())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.ends.append(self._state())

    def _state(self) -> State:
        state = self.model.distribute_strategy.compression_state
        totals = [state.total(variable) for variable in self.model.trainable_variables]
        return State([weight.tobytes() for weight in self.model.get_weights()], totals)


def averaged() -> Any:
    """An optimizer that averages weights, lets them decay, and clips."""
    options = {"use_ema": True, "ema_momentum": 0.5, "weight_decay": 0.01}
    return tf_keras.optimizers.Adam(0.01, **options, global_clipnorm=0.1)


def interrupted(strategy: Any, folder: Any, save_freq: Any) -> Recorder:
    seen = Recorder()
    backup = tf_gc.keras.BackupAndRestore(folder, save_freq)
    with contextlib.suppress(InterruptedError):
        fit(strategy, averaged, [backup, seen, StopAtThird()])
    return seen


def fit(
    strategy: tf.distribute.Strategy,
    make_optimizer: Callable[[], Any],
    callbacks: Any = (),
    **options: Any,
) -> Any:
    """Trains a model with dropout-free layers and a BatchNormalization; returns it, with losses."""
    tf_keras.utils.set_random_seed(3)
    with strategy.scope():
        layers = [
            tf_keras.layers.Dense(16, activation="relu", name="first"),
            tf_keras.layers.BatchNormalization(momentum=0.5, name="normalized"),
            tf_keras.layers.Dense(CLASSES, name="second", dtype="float32"),
        ]
        model = tf_keras.Sequential([tf_keras.layers.InputLayer((FEATURES,)), *layers])
        loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(make_optimizer(), loss, metrics=["accuracy"], **options)
    history = model.fit(batches(SAMPLES), epochs=3, verbose=0, callbacks=list(callbacks))
    return model, history.history["loss"]


def bits(model: Any) -> list[bytes]:
    """The bytes of all weights and of what the optimizer keeps."""
    variables = model.optimizer.variables
    return [
        np.asarray(v).tobytes()
        for v in [*model.variables, *(variables() if callable(variables) else variables)]
    ]
