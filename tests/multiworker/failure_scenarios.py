"""What workers do in the tests of failures."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_gc


@dataclasses.dataclass
class Ending:
    """How an attempt ended."""

    error: str  # the type's name, "" if it went well
    message: str
    seconds: float
    batches: int = 0  # how many were trained
    afterwards: str = ""  # the error that another strategy ends with


def worker_index() -> int:
    return tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id


def construct(timeout_seconds: float | None) -> Ending:
    """Makes a strategy; says how that ended and how long it took."""
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout_seconds)
    start = time.monotonic()
    try:
        tf_gc.CompressedMultiWorkerMirroredStrategy(communication_options=options)
    except Exception as error:
        return Ending(type(error).__name__, str(error), time.monotonic() - start)
    return Ending("", "", time.monotonic() - start)


def strategies_after_failures(late: int) -> tuple[list[bool], list[int], list[float]]:
    """Lets a collective fail between strategies, the first of them TensorFlow's own.

    Args:
      late: the worker that makes each of the others a second after the other worker.

    Returns:
      For each strategy whether a collective failed where shapes differed, what came of one before
      that, and what a variable of it is at the end.
    """
    stock, ours = (
        tf.distribute.MultiWorkerMirroredStrategy,
        tf_gc.CompressedMultiWorkerMirroredStrategy,
    )
    failed, rows, variables = [], [], []
    for kind in (stock, ours, ours, ours):
        if kind is ours and worker_index() == late:
            time.sleep(1)
        strategy = kind()
        with strategy.scope():
            variables.append(tf.Variable(1.0))

        def gather(width: int, strategy: Any = strategy) -> tf.Tensor:
            value = tf.ones([1, width])
            return tf.function(lambda: strategy.gather(value, axis=0), autograph=False)()

        rows.append(len(gather(3)))
        try:
            gather(4 + worker_index())
            failed.append(False)
        except tf.errors.OpError:
            failed.append(True)
    return failed, rows, [float(variable.numpy()) for variable in variables]


class Progress(keras.callbacks.Callback):
    """Notes when the latest batch ended."""

    batches = 0
    latest = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches += 1
        self.latest = time.monotonic()


def die_while_training(victim: int, step: int) -> Ending:
    """Trains; the worker `victim` is killed inside a step, between forward and backward pass."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    calls = 0

    def die() -> np.float32:
        nonlocal calls
        calls += 1
        if worker_index() == victim and calls == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.float32(0)

    def loss(wanted: tf.Tensor, predicted: tf.Tensor) -> tf.Tensor:
        nothing = tf.numpy_function(die, [], tf.float32)
        nothing.set_shape([])
        return keras.losses.mean_squared_error(wanted, predicted) + nothing

    with strategy.scope():
        model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64)])
        model.compile("sgd", loss)
    progress = Progress()
    try:
        model.fit(
            *(np.zeros((640, 32), np.float32), np.zeros((640, 64), np.float32)),
            batch_size=8,
            verbose=0,
            callbacks=[progress],
        )
    except Exception as error:
        ending = Ending(type(error).__name__, str(error), time.monotonic() - progress.latest)
        # A worker that does not coordinate the others is missed after 10 seconds only.
        afterwards = construct(None).message if victim == 0 else ""
        return dataclasses.replace(ending, batches=progress.batches, afterwards=afterwards)
    return Ending("", "", 0.0, progress.batches)


def _number(variable: keras.Variable) -> float:
    return float(tf.convert_to_tensor(variable))


class Scales(keras.callbacks.Callback):
    """Notes the loss scale and the first layer's kernel after each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.scales: list[float] = []
        self.kernels: list[np.ndarray] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.scales.append(_number(self.model.optimizer.dynamic_scale))
        self.kernels.append(self.model.layers[0].get_weights()[0])


def overflow_on_one_worker(
    worker: int, step: int, steps: int
) -> tuple[list[float], list[np.ndarray], int]:
    """Trains in float16; the gradients of one step overflow on one worker.

    Returns loss scale and kernel after each step, and how many steps the optimizer took.
    """
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    batch = 8
    random = np.random.default_rng(worker_index())
    x = random.uniform(0, 1, (steps, batch, 32)).astype(np.float32)
    if worker_index() == worker:
        x[step] = 6e4
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    data = tf.data.Dataset.from_tensor_slices((x, np.ones((steps, batch, 64), np.float32)))
    data = data.unbatch().batch(batch * strategy.num_replicas_in_sync).with_options(options)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        policy = "mixed_float16"
        model = keras.Sequential(
            [
                keras.Input((32,)),
                keras.layers.Dense(64, dtype=policy),
                keras.layers.Dense(64, dtype=policy),
                keras.layers.Activation("linear", dtype="float32"),
            ]
        )
        optimizer = keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(0.01), initial_scale=1024.0
        )
        model.compile(optimizer, "mse")
    scales = Scales()
    model.fit(data.repeat(), steps_per_epoch=steps, verbose=0, callbacks=[scales])
    return scales.scales, scales.kernels, int(_number(optimizer.iterations))


def programs_that_differ() -> dict[str, str]:
    """Trains under one strategy; worker 1 does something else, each time another thing.

    Returns:
      For each of these the error, which leaves the strategy usable, and at last "" for none.
    """
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    x, y = np.zeros((16, 8), np.float32), np.zeros((16, 4), np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(8)

    def train(odd: str) -> None:
        with strategy.scope():
            layers = [keras.layers.Dense(6 if odd == "width" else 5)]
            layers += [keras.layers.Dense(7)] * (odd == "depth")
            layers += [keras.layers.Dense(4)]
            layers[0].trainable = odd != "frozen"
            model = keras.Sequential([keras.Input((8,)), *layers])
            optimizer = "adam" if odd == "optimizer" else "sgd"
            model.compile(optimizer, "mse", steps_per_execution=2 if odd == "execution" else 1)
        model.fit(
            data,
            steps_per_epoch=4 if odd == "steps" else 2,
            epochs=3 if odd == "epochs" else 2,
            validation_data=(x, y) if odd == "validation" else None,
            verbose=0,
        )

    errors = {}
    for case in CASES:
        try:
            train(case if worker_index() == 1 else "")
        except ValueError as error:
            errors[case] = str(error)
    return errors


# What worker 1 does otherwise than worker 0, and what the workers say that they do.
CASES = {
    "width": ("makes a variable of float32 (8, 5), 'k", "makes a variable of float32 (8, 6), 'k"),
    "depth": ("makes a variable of float32 (5, 4), 'k", "makes a variable of float32 (5, 7), 'k"),
    "frozen": ("SGD, 4 weights to train with 69 el", "SGD, 2 weights to train with 24 elements"),
    "optimizer": ("begins to read data, ", "makes a variable of float32 (8, 5)"),
    "execution": ("steps_per_execution=1", "steps_per_execution=2"),
    "steps": ("steps_per_epoch=2", "steps_per_epoch=4"),
    "epochs": ("epochs=2", "epochs=3"),
    "validation": ("ends epoch 1 of fit", "begins to read data, steps_per_epoch=None"),
}


def shapes_that_differ(as_function: bool) -> str:
    """Gathers values that do not fit together from two replicas of one host.

    Returns:
      The error, after which no collective works in this process.
    """
    strategy = tf_gc.CompressedMirroredStrategy(["CPU:0", "CPU:1"], {"type": "none"})
    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.ones([1, 1 + context.replica_id_in_sync_group])
    )

    def gather() -> tf.Tensor:
        return strategy.gather(values, axis=0)

    try:
        (tf.function(gather) if as_function else gather)()
    except tf.errors.InvalidArgumentError as error:
        return error.message
    raise AssertionError("no error")
