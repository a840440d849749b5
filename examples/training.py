"""The examples' options, strategy, fit and summary."""

import argparse
import os
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import extras  # noqa: F401  (in this folder; what is missing is said first)
import keras
import numpy as np
import tensorflow as tf
from digits import StepTimer, replica_devices

import tf_gc
from tf_gc.params import from_params

Strategy = tf_gc.CompressedMirroredStrategy | tf_gc.CompressedMultiWorkerMirroredStrategy
Split = tuple[np.ndarray, np.ndarray]
Optimizers = dict[str, Callable[[], keras.optimizers.Optimizer]]

COMPRESSIONS = ["none", "quantized", "2bit", "1bit", "low_rank", "bfloat16", "float16"]


def threshold(text: str) -> float | str:
    """The type of `--threshold`."""
    return text if text == "auto" else float(text)


def positive(text: str) -> int:
    """The type of options that count."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return int(text)


def make_parser(description: str, optimizers: list[str]) -> argparse.ArgumentParser:
    """Returns a parser with the common options; the first optimizer is the default."""
    parser = argparse.ArgumentParser(description=description)
    compression = parser.add_argument_group("compression")
    compression.add_argument("--compression", choices=COMPRESSIONS, default="quantized")
    compression.add_argument(
        "--bits", type=int, choices=[1, 2, 3, 4, 8], help="of quantized (default: 3)"
    )
    compression.add_argument(
        "--threshold", type=threshold, help='of 2bit and 1bit: "auto" (the default) or a number'
    )
    compression.add_argument("--rank", type=positive, help="of low_rank (default: 4)")
    parser.add_argument(
        "--replicas", type=positive, default=2, help="without workers: GPUs, or parts of the CPU"
    )
    training = parser.add_argument_group("training")
    training.add_argument("--optimizer", choices=optimizers, default=optimizers[0])
    training.add_argument("--learning-rate", type=float, help="default: one that suits --optimizer")
    training.add_argument("--epochs", type=positive, default=10)
    training.add_argument("--batch-size", type=positive, default=64, help="of all replicas")
    training.add_argument("--seed", type=int, default=1)
    output = parser.add_argument_group("output")
    output.add_argument("--plot", metavar="FILE", help="write a picture of the training curves")
    output.add_argument("--tensorboard", metavar="DIRECTORY", help="write a log for TensorBoard")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Returns the options, checked against each other."""
    options = parser.parse_args()
    if options.threshold is not None and options.compression not in ("2bit", "1bit"):
        parser.error("--threshold is for --compression 2bit or 1bit")
    if options.bits is not None and options.compression != "quantized":
        parser.error("--bits is for --compression quantized")
    if options.rank is not None and options.compression != "low_rank":
        parser.error("--rank is for --compression low_rank")
    try:
        from_params(compression_params(options))
    except ValueError as error:
        option = "--rank" if options.compression == "low_rank" else "--threshold"
        parser.error(f"{option}: {error}")
    return options


def compression_params(options: argparse.Namespace) -> dict[str, float | str]:
    """Returns `compression_params` for --compression and the options that go with it."""
    given = {"bits": options.bits, "threshold": options.threshold, "rank": options.rank}
    known = {name: value for name, value in given.items() if value is not None}
    return {"type": options.compression, **known}


def make_strategy(options: argparse.Namespace) -> Strategy:
    """Returns the strategy, for workers where there are any; before anything runs on TensorFlow."""
    params = compression_params(options)
    if "TF_CONFIG" in os.environ:
        return tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
    return tf_gc.CompressedMirroredStrategy(replica_devices(options.replicas), params)


def any_replica(strategy: Strategy, condition: bool) -> bool:
    """Returns whether `condition` holds on any worker; all have to call it."""

    @tf.function
    def count() -> tf.Tensor:
        ones = strategy.run(lambda: tf.constant(float(condition)))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, ones, axis=None)

    return bool(count() > 0)


def fit(
    model: keras.Model,
    strategy: Strategy,
    train_data: Split,
    test_data: Split,
    options: argparse.Namespace,
) -> dict[str, float]:
    """Trains the model with a progress bar; returns its metrics on the test data."""
    replicas = strategy.num_replicas_in_sync
    # Under a stock strategy Keras 3 fails on a first batch that replicas cannot share evenly.
    batch_size = -(-options.batch_size // replicas) * replicas
    timer = StepTimer()
    callbacks: list[keras.callbacks.Callback] = [timer]
    if options.tensorboard:
        callbacks.append(keras.callbacks.TensorBoard(options.tensorboard))
    # All workers have to make the same calls; one of them shows the progress.
    history = model.fit(
        *train_data,
        batch_size=batch_size,
        epochs=options.epochs,
        validation_data=test_data,
        callbacks=callbacks,
        verbose=1 if strategy.is_chief else 0,
    )
    metrics = model.evaluate(*test_data, batch_size=batch_size, verbose=0, return_dict=True)
    if strategy.is_chief:
        print(f"\n{replicas} replicas, {strategy.compression_params}")
        for name, value in metrics.items():
            show(f"test {name}", f"{value:.4f}")
        show_cost(strategy, timer)
        if options.plot:
            plot(history.history, options.plot)
            print(f"written: {options.plot}", flush=True)
    return metrics


def show(name: str, value: str) -> None:
    """Prints a line of the summary."""
    print(f"{name:27} {value}", flush=True)


def show_cost(strategy: Strategy, timer: StepTimer) -> None:
    """Prints the bytes and the time of a step."""
    sent = "not compressed"  # a single replica, or --compression none
    if (traffic := strategy.traffic) is not None and traffic.replicas > 1:
        sent = f"{traffic.sent_bytes:,} instead of {traffic.stock_bytes:,} ({traffic.ratio:.1f} x)"
    show("bytes per step and replica", sent)
    if timer.seconds:  # the first epoch is not timed
        show("seconds per step", f"{np.median(timer.seconds):.4f}")


def plot(history: dict[str, list[float]], path: str) -> None:
    """Draws each metric by epoch, on the training data and on the test data."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = [name for name in history if f"val_{name}" in history]
    figure, every_axes = plt.subplots(
        1, len(names), figsize=(4.5 * len(names), 3.5), layout="constrained", squeeze=False
    )
    for axes, name in zip(every_axes[0], names, strict=True):
        epochs = range(1, len(history[name]) + 1)
        axes.plot(epochs, history[name], ".-", label="training")
        axes.plot(epochs, history[f"val_{name}"], ".-", label="test")
        axes.set_xlabel("epoch")
        axes.set_ylabel(name)
        axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
