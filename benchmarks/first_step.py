"""Processor time until the first step is done: stock MirroredStrategy against tf_gc's.

A new process for each measurement makes a strategy and a model and calls `fit` for one step, so
that Python traces and TensorFlow optimizes a graph; the user and system seconds of that are
counted, without imports. The variants take turns, since machines drift. The model "resnet" is
held out: nothing was tuned on it. Writes results/first_step.json and .png.

    python benchmarks/first_step.py
    python benchmarks/first_step.py --models dense --rounds 1
"""

import argparse
import json
import os
import statistics
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import local_jobs
import matplotlib
import models
import report
import tensorflow as tf

import tf_gc

matplotlib.use("Agg")
from matplotlib import pyplot as plt

# By name, compression_params; False for the stock strategy.
VARIANTS: dict[str, Any] = {
    "stock": False,
    "none": {"type": "none"},
    "2bit fixed": {"type": "2bit", "threshold": 0.01},
    "default, warm_up=False": {"type": "quantized", "warm_up": False},
    "default": None,
}
# What a default is to stay below, as a multiple of stock.
BAR = 1.2


def dense(batch: int) -> models.Task:
    """A hundred layers of 64 units and one of 10: 202 tensors, 0.4 million parameters."""
    model = keras.Sequential([keras.Input((64,))])
    for _ in range(100):
        model.add(keras.layers.Dense(64, activation="relu"))
    model.add(keras.layers.Dense(10))
    return models.Task(model, models.reals(batch, 64), models.labels(10, batch))


MODELS = {"dense": dense, "resnet": models.resnet}


def job(task: dict[str, Any]) -> None:
    """What a process does: makes one step, and prints the processor time that it took."""
    replicas, params = task["replicas"], task["params"]
    devices = [f"CPU:{i}" for i in range(replicas)]
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * replicas,
    )
    tf.config.list_logical_devices()
    start = time.process_time()
    if params is False:
        strategy = tf.distribute.MirroredStrategy(devices)
    else:
        strategy = tf_gc.CompressedMirroredStrategy(devices, params)
    with strategy.scope():
        made = MODELS[task["model"]](4 * replicas)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        made.model.compile("adam", loss)
    made.model.fit(made.x, made.y, batch_size=4 * replicas, verbose=0)
    print(json.dumps({"seconds": time.process_time() - start}))


def measure(model: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns, for each variant, its seconds in each round, their median and ratio to stock."""
    rounds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for number in range(options.rounds):
        order = list(VARIANTS.items())
        for name, params in order if number % 2 == 0 else reversed(order):
            task = {"model": model, "params": params, "replicas": options.replicas}
            (answer,) = local_jobs.run(__file__, task, 1, options.limit)
            rounds[name].append(answer["seconds"])
    table = {}
    print(f"\n{model:22}{'seconds':>10}{'of stock':>10}   (medians of {options.rounds} rounds)")
    for name, seconds in rounds.items():
        ratio = statistics.median(
            ours / stock for ours, stock in zip(seconds, rounds["stock"], strict=True)
        )
        table[name] = {"seconds": statistics.median(seconds), "of_stock": ratio, "rounds": seconds}
        print(f"{name:22}{table[name]['seconds']:10.1f}{ratio:10.2f}", flush=True)
    return table


def draw(results: dict[str, Any], path: Any) -> None:
    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    for i, (model, table) in enumerate(results.items()):
        places = [place + 0.4 * (i - (len(results) - 1) / 2) for place in range(len(table))]
        axes.barh(places, [row["of_stock"] for row in table.values()], 0.38, label=model)
    axes.axvline(BAR, color="gray", linestyle=":", label=f"{BAR} times stock")
    axes.set_yticks(range(len(VARIANTS)), list(VARIANTS))
    axes.invert_yaxis()
    axes.set_xlabel("processor time until the first step is done, of stock")
    figure.legend(loc="outside upper center", ncols=len(results) + 1, fontsize="small")
    figure.savefig(path.with_suffix(".png"), dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=600, help="seconds for each process")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job(json.loads(options.job))
        return

    results = {model: measure(model, options) for model in options.models}
    path = report.write("first_step", {"options": vars(options), "models": results})
    draw(results, path)
    print(f"written: {path} and {path.with_suffix('.png').name}")


if __name__ == "__main__":
    main()
