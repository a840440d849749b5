"""Step time on one host: stock MirroredStrategy against CompressedMirroredStrategy.

Trains a fully connected model on logical CPU devices, in alternation, and compares the median
time of a step round by round, since machines drift. Writes results/step_time.json and .png.
"""

import argparse
import os
import statistics
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import matplotlib
import numpy as np
import report
import tensorflow as tf

import tf_gc

matplotlib.use("Agg")
from matplotlib import pyplot as plt

INPUTS = 1024
CLASSES = 10


def build(strategy: tf.distribute.Strategy, options: argparse.Namespace) -> Callable[[], None]:
    """Returns a function that runs one training step of a new model."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((INPUTS,))])
        for _ in range(options.layers):
            model.add(keras.layers.Dense(options.width, activation="relu"))
        model.add(keras.layers.Dense(CLASSES))
        optimizer = keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)
        loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    random = np.random.default_rng(1)
    x = tf.constant(random.random((options.batch_size, INPUTS), dtype=np.float32))
    y = tf.constant(random.integers(CLASSES, size=options.batch_size))

    def replica_step() -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    @tf.function
    def step() -> None:
        strategy.run(replica_step)

    report.finish_warm_up(strategy, step)
    build.parameters = model.count_params()  # type: ignore[attr-defined]
    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=32, help="of one replica")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=15, help="timed steps in a round")
    parser.add_argument("--name", default="step_time", help="of the files written")
    options = parser.parse_args()

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * options.replicas,
    )
    devices = [f"CPU:{i}" for i in range(options.replicas)]
    strategies = {
        "stock": tf.distribute.MirroredStrategy(devices),
        "none": tf_gc.CompressedMirroredStrategy(devices, tf_gc.NoCompression()),
        "2bit fixed": tf_gc.CompressedMirroredStrategy(devices, tf_gc.TwoBit(0.01)),
        "2bit auto": tf_gc.CompressedMirroredStrategy(devices, tf_gc.TwoBit()),
        "default": tf_gc.CompressedMirroredStrategy(devices),
    }
    runs = {
        name: report.timed(build(strategy, options), options.steps)
        for name, strategy in strategies.items()
    }
    rounds = {
        name: report.medians(seconds)
        for name, seconds in report.alternate(runs, options.rounds).items()
    }

    parameters = build.parameters  # type: ignore[attr-defined]
    print(f"\n{parameters:,} parameters, {options.replicas} replicas, {report.machine()['cpu']}")
    print(f"{'':12}{'ms per step':>12}{'of stock':>10}   (medians of {options.rounds} rounds)")
    table = {}
    for name, seconds in rounds.items():
        ratio = statistics.median(
            ours / stock for ours, stock in zip(seconds, rounds["stock"], strict=True)
        )
        table[name] = {"seconds": statistics.median(seconds), "of_stock": ratio, "rounds": seconds}
        print(f"{name:12}{1e3 * table[name]['seconds']:12.1f}{ratio:10.2f}")
    path = report.write(
        options.name,
        {"options": vars(options), "parameters": parameters, "strategies": table},
    )

    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.boxplot([[1e3 * s for s in seconds] for seconds in rounds.values()])
    axes.set_xticks(range(1, len(rounds) + 1), list(rounds))
    axes.set_ylim(bottom=0)
    axes.set_ylabel("ms per step")
    axes.set_title(f"{parameters / 1e6:.1f} M parameters, {options.replicas} replicas on one host")
    figure.savefig(path.with_suffix(".png"), dpi=120)
    print(f"written: {path} and {path.with_suffix('.png').name}")


if __name__ == "__main__":
    main()
