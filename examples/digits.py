"""Handwritten digits on two replicas of one host: stock strategy against compressed.

Trains the same model under `tf.distribute.MirroredStrategy` and under
`tf_gc.CompressedMirroredStrategy`, on scikit-learn's digits (1,797 real images that ship with
the package), and compares accuracy, bytes sent and time. Each strategy trains with the same
seeds: a seed decides about the initial weights and the order of the images. One seed tells
little, since seeds differ by more than the strategies do; the table shows mean and spread.

    python examples/digits.py
    python examples/digits.py --threshold 0.01 --epochs 30
"""

import argparse
import dataclasses
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import extras  # noqa: F401  (in this folder; what is missing is said first)
import keras
import numpy as np
import tensorflow as tf
from sklearn import datasets, model_selection

import tf_gc

Split = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass
class Result:
    """The results of the training runs under one strategy."""

    strategy: str
    accuracies: list[float]  # one for each seed
    sent_bytes: int
    seconds_per_step: float


class StepTimer(keras.callbacks.Callback):
    """Measures the time from batch to batch, without the first epoch (it traces)."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._previous: float | None = None
        self._timing = epoch > 0

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        now = time.perf_counter()
        if self._timing and self._previous is not None:
            self.seconds.append(now - self._previous)
        self._previous = now


def load_digits(seed: int) -> tuple[Split, Split]:
    """Returns (train, test), images scaled to [0, 1]."""
    digits = datasets.load_digits()
    images = (digits.data / 16).astype(np.float32)
    x, x_test, y, y_test = model_selection.train_test_split(
        images, digits.target, test_size=0.25, random_state=seed, stratify=digits.target
    )
    return (x, y), (x_test, y_test)


def replica_devices(replicas: int) -> list[str]:
    """Returns that many GPUs or, where there are fewer, parts of the CPU."""
    if len(tf.config.list_physical_devices("GPU")) >= replicas:
        return [f"GPU:{i}" for i in range(replicas)]
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * replicas,
    )
    return [f"CPU:{i}" for i in range(replicas)]


def make_model() -> keras.Model:
    """Returns the compiled model; called in a strategy's scope."""
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(512, activation="relu"),
            keras.layers.Dense(512, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(0.05, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def repeated(data: Split, batch_size: int, seed: int) -> tf.data.Dataset:
    """Returns endless batches: to start a small dataset anew takes longer than to train on it."""
    dataset = tf.data.Dataset.from_tensor_slices(data)
    return dataset.shuffle(len(data[0]), seed=seed).repeat().batch(batch_size)


def train(
    strategy: tf.distribute.Strategy, data: tuple[Split, Split], options: argparse.Namespace
) -> tuple[list[float], float]:
    """Returns the test accuracy with each seed, and the median seconds of a step."""
    train_data, test_data = data
    with strategy.scope():
        model = make_model()
        model.optimizer.build(model.trainable_variables)
    untrained = [variable.numpy() for variable in model.optimizer.variables]
    timer = StepTimer()
    accuracies = []
    for seed in range(1, options.seeds + 1):
        # One model, for TensorFlow to trace once, that starts anew with each seed.
        keras.utils.set_random_seed(seed)
        model.set_weights(make_model().get_weights())
        for variable, value in zip(model.optimizer.variables, untrained, strict=True):
            variable.assign(value)
        if isinstance(strategy, tf_gc.CompressedMirroredStrategy):
            strategy.compression_state.reset()
        model.fit(
            repeated(train_data, options.batch_size, seed),
            shuffle=False,  # it is shuffled
            steps_per_epoch=len(train_data[0]) // options.batch_size,
            epochs=options.epochs,
            callbacks=[timer],
            verbose=0,
        )
        _, accuracy = model.evaluate(*test_data, batch_size=options.batch_size, verbose=0)
        accuracies.append(accuracy)
        print(f"  seed {seed}: test accuracy {accuracy:.4f}", flush=True)
    return accuracies, float(np.median(timer.seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5, help="how many (default %(default)s)")
    parser.add_argument("--epochs", type=int, default=12, help="at least 2 (default %(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, help="of all replicas together")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument(
        "--bits", type=int, choices=[1, 2, 3, 4, 8], default=3, help="of an element"
    )
    parser.add_argument("--threshold", type=float, help="MXNet's two bits, instead of --bits")
    options = parser.parse_args()
    if options.seeds < 1:
        parser.error("--seeds must be at least 1")
    if options.epochs < 2:
        parser.error("--epochs must be at least 2: the first is not timed")
    if options.replicas < 2:
        parser.error("--replicas must be at least 2: a single replica sends nothing")
    params: tf_gc.Quantized | tf_gc.TwoBit = tf_gc.Quantized(options.bits)
    if options.threshold is not None:
        try:
            params = tf_gc.TwoBit(options.threshold)
        except ValueError as error:
            parser.error(f"--threshold: {error}")

    devices = replica_devices(options.replicas)
    data = load_digits(seed=1)

    print(f"\nstock MirroredStrategy, {options.replicas} replicas, {options.epochs} epochs")
    stock = train(tf.distribute.MirroredStrategy(devices), data, options)
    print(f"\nCompressedMirroredStrategy, {options.replicas} replicas, {options.epochs} epochs")
    compressed_strategy = tf_gc.CompressedMirroredStrategy(devices, params)
    compressed = train(compressed_strategy, data, options)

    traffic = compressed_strategy.traffic
    assert traffic is not None
    show(
        [
            Result("MirroredStrategy", stock[0], traffic.stock_bytes, stock[1]),
            Result("CompressedMirroredStrategy", compressed[0], traffic.sent_bytes, compressed[1]),
        ]
    )


def spread(values: list[float]) -> float:
    """Returns the standard deviation, 0 for a single value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def show(results: list[Result]) -> None:
    """Prints the table."""
    print(f"\n{'':28}{'test accuracy,':>17}{'bytes sent per':>18}{'':>8}{'seconds':>10}")
    print(
        f"{'strategy':28}{'mean ± spread':>17}{'replica and step':>18}{'ratio':>8}{'per step':>10}"
    )
    for result in results:
        accuracy = f"{np.mean(result.accuracies):.4f} ± {spread(result.accuracies):.4f}"
        ratio = results[0].sent_bytes / result.sent_bytes
        print(
            f"{result.strategy:28}{accuracy:>17}{result.sent_bytes:18,}{ratio:8.1f}"
            f"{result.seconds_per_step:10.4f}"
        )


if __name__ == "__main__":
    main()
