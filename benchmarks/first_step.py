"""Processor seconds until the first step of a deep model is done, of the stock strategy's.

A new process for each makes a strategy of two CPU replicas and a model of keras.applications, and
calls `fit` for one step: Python traces, and TensorFlow optimizes, a graph. The user and system
seconds are counted, without imports. The variants take turns, since machines drift.

    python benchmarks/first_step.py

Writes results/first_step.json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import report

# By name, compression_params; False for the stock strategy.
VARIANTS: dict[str, Any] = {
    "stock": False,
    "none": {"type": "none"},
    "default, warm_up=False": {"type": "quantized", "warm_up": False},
    "default": None,
}
MODELS = ("EfficientNetB0", "ResNet50", "DenseNet201")


def job(model: str, params: Any) -> float:
    """Makes one step, and returns the processor seconds that it took."""
    import keras
    import numpy as np
    import tensorflow as tf

    import tf_gc

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    devices = [device.name for device in tf.config.list_logical_devices()]
    start = time.process_time()
    if params is False:
        strategy = tf.distribute.MirroredStrategy(devices)
    else:
        strategy = tf_gc.CompressedMirroredStrategy(devices, params)
    with strategy.scope():
        made = getattr(keras.applications, model)(weights=None, input_shape=(32, 32, 3), classes=10)
        made.compile("sgd", "sparse_categorical_crossentropy")
    made.fit(np.zeros((4, 32, 32, 3)), np.zeros(4), batch_size=4, verbose=0)
    return time.process_time() - start


def measure(model: str, names: list[str], rounds: int) -> dict[str, Any]:
    """Returns for each variant its seconds in each round, and the median of its ratio to stock."""
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            task = json.dumps([model, VARIANTS[name]])
            command = [sys.executable, __file__, "--job", task]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            seconds[name].append(float(output.split()[-1]))
    table = {}
    for name, mine in seconds.items():
        ratios = [ours / stock for ours, stock in zip(mine, seconds["stock"], strict=True)]
        table[name] = {"of_stock": statistics.median(ratios), "seconds": mine}
        print(f"{model:16}{name:24}{statistics.median(mine):8.1f}{table[name]['of_stock']:8.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(job(*options.job))
        return
    names = list(dict.fromkeys(["stock", *options.variants]))
    models = {model: measure(model, names, options.rounds) for model in options.models}
    print(f"written: {report.write('first_step', {'rounds': options.rounds, 'models': models})}")


if __name__ == "__main__":
    main()
