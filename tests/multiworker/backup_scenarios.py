"""Workers that back up and are killed; each reports what it did."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_gc

CLASSES, FEATURES, RATE = 4, 16, 0.05
LEDGER = np.linspace(-2, 3, 300, dtype=np.float32)  # the gradient of one variable in each step


class Ledger(keras.layers.Layer):
    """Passes its input on, and has a variable whose summed gradient always is `LEDGER`."""

    def build(self, shape: Any) -> None:
        self.sent = self.add_weight(shape=LEDGER.shape, initializer="zeros", name="sent")

    def call(self, inputs: Any) -> Any:
        self.add_loss(tf.reduce_sum(self.sent * LEDGER))
        return inputs


def data(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points around a centre for each class, some of them nearer to another's."""
    numbers = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    y = numbers.integers(CLASSES, size=samples)
    x = centres[y] + numbers.normal(scale=1.5, size=(samples, FEATURES))
    return x.astype(np.float32), y


def make_model(strategy: tf.distribute.Strategy) -> keras.Model:
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((FEATURES,)),
                Ledger(),
                keras.layers.Dense(32, activation="relu"),
                keras.layers.Dense(CLASSES),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(RATE), loss)
    return model


def missing(strategy: Any, model: keras.Model) -> float:
    """Returns the largest part of the ledger's gradients that was neither applied nor is left.

    All gradients of the steps that the optimizer counts are the variable's change by the
    learning rate plus the sum of its residuals, whatever happened between those steps.
    """
    ledger = model.layers[0].sent
    left = strategy.compression_state.total(ledger.value)
    steps = int(model.optimizer.iterations.numpy())
    given = steps * LEDGER.astype(np.float64)
    applied = -ledger.numpy().astype(np.float64) / RATE
    return float(np.abs(given - applied - (0 if left is None else left)).max() / max(steps, 1))


class Deadly(keras.callbacks.Callback):
    """Sends a signal to this process some time after a step, whatever it is doing then."""

    def __init__(self, steps: int, seconds: float, number: int) -> None:
        super().__init__()
        self.steps_left = steps
        self.timer = threading.Timer(seconds, os.kill, (os.getpid(), number))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps_left -= 1
        if self.steps_left == 0:
            self.timer.start()


class Start(keras.callbacks.Callback):
    """Notes with what training starts, and takes a millisecond or more for each step."""

    steps: int | None = None
    epoch = 0
    missing = 0.0

    def __init__(self, strategy: Any, seconds: float) -> None:
        super().__init__()
        self.strategy, self.seconds = strategy, seconds

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self.steps is None:
            self.steps = int(self.model.optimizer.iterations.numpy())
            self.epoch = epoch
            self.missing = missing(self.strategy, self.model)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(self.seconds)


def train(
    folder: str,
    epochs: int,
    signals: dict[int, tuple[int, float, int]],
    seconds: float = 0.0,
    save_freq: Any = "epoch",
) -> dict[str, Any]:
    """Trains with backups.

    Args:
      folder: of the backups.
      epochs: how many, 16 steps each.
      signals: by the worker's number, the steps and then the seconds to a signal, and which.
      seconds: that each step takes at least.
      save_freq: when to back up.
    """
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(
        compression_params=tf_gc.TwoBit(bypass_size=0)
    )
    model = make_model(strategy)
    backup = tf_gc.keras.BackupAndRestore(folder, save_freq)
    start = Start(strategy, seconds)
    callbacks = [backup, start]
    mine = signals.get(strategy.cluster_resolver.task_id)
    if mine is not None:
        callbacks.append(Deadly(*mine))
    settings = {"batch_size": 32, "shuffle": False, "verbose": 0}
    try:
        model.fit(*data(512, 1), epochs=epochs, callbacks=callbacks, **settings)
    except tf.errors.OpError:
        if mine is not None and mine[2] == signal.SIGKILL:
            os.kill(
                os.getpid(), signal.SIGKILL
            )  # another worker was killed in this one's last step
        raise
    x, y = data(2000, 2)
    return {
        "accuracy": float(np.mean(np.argmax(model(x), axis=1) == y)),  # `evaluate` would be traced
        "epoch": start.epoch,
        "start": start.steps,
        "steps": int(model.optimizer.iterations.numpy()),
        "missing": max(start.missing, missing(strategy, model)),
        "preempted": backup.preempted,
        "left": os.path.exists(folder),
    }


def kills(seed: int, steps: int) -> dict[int, tuple[int, float, int]]:
    """When to kill both of two workers: one at any moment, the other soon after."""
    numbers = random.Random(seed)
    step = numbers.randint(1, steps)
    first = numbers.uniform(0, 0.05)
    times = [first, first + numbers.uniform(0, 0.3)]
    numbers.shuffle(times)
    return {worker: (step, after, signal.SIGKILL) for worker, after in enumerate(times)}
