"""Jobs that are killed, or told to end, and go on where their backup is."""

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases, matrix
from tests.keras.stock import compiled
from tests.multiworker import cluster

pytestmark = pytest.mark.multiworker

EPOCHS, STEPS_PER_EPOCH = 16, 16
ROUNDING = 1e-4  # of a gradient of up to 3, for each step
RATE = 0.05
LEDGER = np.linspace(-2, 3, 300, dtype=np.float32)  # the gradient of one variable in each step


class Ledger(keras.layers.Layer):
    """Passes its input on, and has a variable whose summed gradient always is `LEDGER`."""

    def build(self, shape: Any) -> None:
        self.sent = self.add_weight(shape=LEDGER.shape, initializer="zeros", name="sent")

    def call(self, inputs: Any) -> Any:
        self.add_loss(tf.reduce_sum(self.sent * LEDGER))
        return inputs


def make_model(strategy: tf.distribute.Strategy) -> keras.Model:
    def build() -> keras.Model:
        layers = [Ledger(), keras.layers.Dense(32, "relu"), keras.layers.Dense(4)]
        return keras.Sequential([keras.Input((16,)), *layers])

    return compiled(strategy, build, lambda: keras.optimizers.SGD(RATE), loss="mse")


def missing(strategy: Any, model: keras.Model) -> float:
    """Returns the largest part of the ledger's gradients that was neither applied nor is left.

    The steps that the optimizer counts have given the variable's change by the learning rate plus
    the sum of its residuals, whatever happened between them.
    """
    ledger = model.layers[0].sent
    left = strategy.compression_state.total(ledger.value)
    steps = int(model.optimizer.iterations.numpy())
    given = steps * LEDGER.astype(np.float64)
    applied = -ledger.numpy().astype(np.float64) / RATE
    return float(np.abs(given - applied - (0 if left is None else left)).max() / max(steps, 1))


class Watch(keras.callbacks.Callback):
    """Notes with what training starts; after some steps and seconds it signals this process."""

    start: int | None = None  # steps
    epoch = 0
    missing = 0.0

    def __init__(self, strategy: Any, seconds: float, steps: int, after: float, sent: int) -> None:
        super().__init__()
        self.strategy, self.seconds, self.steps_left = strategy, seconds, steps
        self.timer = threading.Timer(after, os.kill, (os.getpid(), sent))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self.start is None:
            self.start = int(self.model.optimizer.iterations.numpy())
            self.epoch = epoch
            self.missing = missing(self.strategy, self.model)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(self.seconds)
        self.steps_left -= 1
        if self.steps_left == 0:
            self.timer.start()


def train(
    folder: str,
    epochs: int,
    signals: dict[int, tuple[int, float, int]],
    seconds: float = 0.0,
    save_freq: Any = "epoch",
) -> dict[str, Any]:
    """Trains with backups, 16 steps an epoch, each of which takes some seconds at least.

    Signals are, by the worker's number, the steps and then the seconds to a signal, and which.
    """
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(
        compression_params=tf_gc.TwoBit(bypass_size=0)
    )
    model = make_model(strategy)
    backup = tf_gc.keras.BackupAndRestore(folder, save_freq)
    mine = signals.get(strategy.cluster_resolver.task_id, (0, 0.0, 0))
    watch = Watch(strategy, seconds, *mine)
    random = np.random.default_rng(1)
    x, y = random.normal(size=(512, 16)), random.normal(size=(512, 4))
    settings = {"batch_size": 32, "shuffle": False, "verbose": 0}
    try:
        model.fit(x, y, epochs=epochs, callbacks=[backup, watch], **settings)
    except tf.errors.OpError:
        if mine[-1] == signal.SIGKILL:  # another worker was killed in this one's last step
            os.kill(os.getpid(), signal.SIGKILL)
        raise
    return {
        "epoch": watch.epoch,
        "start": watch.start,
        "steps": int(model.optimizer.iterations.numpy()),
        "missing": max(watch.missing, missing(strategy, model)),
        "preempted": backup.preempted,
        "left": os.path.exists(folder),
        "weights": [weights.tolist() for weights in model.get_weights()],
    }


def kills(seed: int, steps: int) -> dict[int, tuple[int, float, int]]:
    """When to kill both of two workers: one at any moment, the other soon after."""
    numbers = random.Random(seed)
    step = numbers.randint(1, steps)
    first = numbers.uniform(0, 0.05)
    times = [first, first + numbers.uniform(0, 0.3)]
    numbers.shuffle(times)
    return {worker: (step, after, signal.SIGKILL) for worker, after in enumerate(times)}


@matrix
def test_two_kills_in_each_of_six_rounds_lose_no_gradient(tmp_path: Path) -> None:
    folder = str(tmp_path / "backup")
    begun = []
    for seed in range(6):
        outcomes = cluster.run(train, folder, EPOCHS, kills(seed, 60), may_fail=True)
        assert [outcome.returncode for outcome in outcomes] == [-signal.SIGKILL] * 2, outcomes
        begun.append((tmp_path / "backup").exists())
    assert begun[-1]

    for report in cluster.values(train, folder, EPOCHS, {}):
        assert report["epoch"] > 0
        assert report["start"] == report["epoch"] * STEPS_PER_EPOCH
        assert report["steps"] == EPOCHS * STEPS_PER_EPOCH
        assert report["missing"] < ROUNDING
        assert not report["left"]


@cases("told, workers, devices, then", (1, 2, 2, 2), (0, 2, 2, 1), (13, 16, 1, 8))
def test_all_workers_stop_at_the_same_step_if_one_gets_sigterm(
    tmp_path: Path, told: int, workers: int, devices: int, then: int
) -> None:
    """The same or another number of workers goes on."""
    folder = str(tmp_path / "backup")
    signals = {told: (20, 0.0, signal.SIGTERM)}
    processes = {"workers": workers, "devices": devices}
    stopped = cluster.values(train, folder, 100_000, signals, 0.002, False, **processes)
    for report in stopped:
        assert report["weights"] == stopped[0]["weights"]
        assert report["preempted"]
        assert report["left"]
        assert report["steps"] == stopped[0]["steps"] > 0
        assert report["missing"] < ROUNDING
    epoch = stopped[0]["steps"] // STEPS_PER_EPOCH
    resumed = cluster.values(train, folder, epoch + 2, {}, workers=then, devices=devices)
    for report in resumed:
        assert report["weights"] == resumed[0]["weights"]
        assert report["start"] == stopped[0]["steps"]
        assert report["epoch"] in (epoch, epoch - 1)
        assert not report["preempted"]
        assert not report["left"]
        assert report["missing"] < ROUNDING


def stop(folder: str, amid: bool) -> tuple[bool, bool, bool]:
    """Trains an epoch, amid or at the end of which the second worker is asked to stop."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    model = make_model(strategy)
    backup = tf_gc.keras.BackupAndRestore(folder)
    is_asked = strategy.cluster_resolver.task_id == 1

    def ask(number: int, logs: Any) -> None:
        time.sleep(0.01)
        if is_asked:
            backup.request_stop()

    asks = keras.callbacks.LambdaCallback(**{"on_train_batch_end" if amid else "on_epoch_end": ask})
    rows = 32 * (1000 if amid else 1)
    model.fit(np.zeros((rows, 16)), np.zeros((rows, 4)), callbacks=[asks, backup], verbose=0)
    all_steps = int(model.optimizer.iterations.numpy()) * 32 == rows
    return backup.preempted, os.path.exists(folder), all_steps


def test_a_request_stops_all_workers_soon_also_after_the_last_step(tmp_path: Path) -> None:
    calls = {amid: (stop, str(tmp_path / f"{amid}"), amid) for amid in (False, True)}
    for reports in cluster.values(cluster.each, calls):
        assert reports == {False: (True, True, True), True: (True, True, False)}
