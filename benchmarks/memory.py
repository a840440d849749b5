"""Peak memory of compressed training against stock, in bytes for each parameter and replica.

Trains a fully connected model for a few steps, in a new process for each variant: on two replicas
of one process, and on two worker processes. A compressed run should take more than stock by a
float32 residual and the messages at most; stock itself copies gradients to pack them. Writes
results/memory.json and .png.

    python benchmarks/memory.py
"""

import argparse
import json
import os
import statistics
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import local_jobs
import matplotlib
import numpy as np
import report
import tensorflow as tf

import tf_gc

matplotlib.use("Agg")
from matplotlib import pyplot as plt

REPLICAS = 2
# By name, compression_params; None for the stock strategy.
VARIANTS: dict[str, Any] = {
    "stock": None,
    "none": {"type": "none"},
    "default, all-gather": {"type": "quantized", "plan": "all_gather"},
    "default, scatter-gather": {"type": "quantized", "plan": "scatter_gather"},
    "2-bit, all-gather": {"type": "2bit", "plan": "all_gather"},
    "2-bit, scatter-gather": {"type": "2bit", "plan": "scatter_gather"},
    "2-bit fixed, all-gather": {"type": "2bit", "threshold": 0.01, "plan": "all_gather"},
    "2-bit fixed, scatter-gather": {"type": "2bit", "threshold": 0.01, "plan": "scatter_gather"},
    "1-bit, all-gather": {"type": "1bit", "plan": "all_gather"},
}
LAYOUTS = {"2 replicas in 1 process": 1, "2 workers": 2}
RESIDUAL = 4  # bytes of a parameter


def make_strategy(task: dict[str, Any]) -> tf.distribute.Strategy:
    params = task["params"]
    if task["workers"] > 1:
        if params is None:
            return tf.distribute.MultiWorkerMirroredStrategy()
        return tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
    devices = [f"CPU:{i}" for i in range(REPLICAS)]
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * REPLICAS,
    )
    if params is None:
        return tf.distribute.MirroredStrategy(devices)
    return tf_gc.CompressedMirroredStrategy(devices, params)


def job(task: dict[str, Any]) -> None:
    """What a process does: trains, and prints its peak memory."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = make_strategy(task)
    with strategy.scope():
        model = keras.Sequential([keras.Input((task["width"],))])
        for _ in range(task["layers"]):
            model.add(keras.layers.Dense(task["width"], activation="relu"))
        optimizer = keras.optimizers.SGD(1e-3)
        optimizer.build(model.trainable_variables)
    x = tf.constant(np.random.default_rng(1).random((4, task["width"]), dtype=np.float32))

    def replica_step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x, training=True) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    @tf.function
    def step() -> None:
        strategy.run(replica_step)

    for _ in range(task["steps"]):
        step()
    status = local_jobs.status()
    # Without files, which processes share.
    peak = 1024 * (status["VmHWM"] - status["RssFile"])
    print(json.dumps({"peak_bytes": peak, "parameters": model.count_params()}))


def measure(
    options: argparse.Namespace, workers: int, params: dict[str, Any] | None
) -> tuple[float, int]:
    """Returns the peak memory, in bytes for each parameter and replica, and the parameters."""
    task = {"workers": workers, "params": params, **vars(options)}
    answers = local_jobs.run(__file__, task, workers, options.limit)
    parameters = answers[0]["parameters"]
    total = sum(answer["peak_bytes"] for answer in answers)
    return total / parameters / REPLICAS, parameters


def message_bytes(params: dict[str, Any] | None) -> float:
    """Returns the bytes of the messages that a replica makes and gets, for each parameter."""
    if params is None or params["type"] == "none":
        return 0.0
    treatment, *_ = tf_gc.params.from_params(params).treatments()
    codec = treatment.way.codec
    one = codec.bits(1) / 8
    if treatment.way.plan == "all_gather":
        return (1 + REPLICAS) * one
    # A message of shards, those that come for the own one, its sum, and all sums.
    return 2 * one + (1 / REPLICAS + 1) * codec.bits(REPLICAS) / 8


def draw(results: dict[str, Any], path: Any) -> None:
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    names = [name for name in VARIANTS if name != "stock"]
    for i, (layout, variants) in enumerate(results.items()):
        places = [place + 0.4 * (i - 0.5) for place in range(len(names))]
        axes.barh(places, [variants[name]["over_stock"] for name in names], 0.38, label=layout)
    for place, name in enumerate(names):
        expected = next(iter(results.values()))[name]["expected"]
        axes.plot([expected] * 2, [place - 0.4, place + 0.4], "k:")
    axes.plot([], [], "k:", label="residual and messages")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.axvline(0, color="gray", linewidth=1)
    axes.set_xlabel("peak memory over stock, bytes for each parameter and replica")
    axes.legend(fontsize="small")
    figure.savefig(path.with_suffix(".png"), dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=3000)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=600, help="seconds for each job")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job(json.loads(options.job))
        return

    results: dict[str, Any] = {}
    parameters = 0
    for layout, workers in LAYOUTS.items():
        results[layout] = {}
        print(f"{layout:30}{'peak':>8}{'over stock':>12}{'expected':>10}  bytes/parameter/replica")
        for name, params in VARIANTS.items():
            rounds = []
            for _ in range(options.rounds):
                peak, parameters = measure(options, workers, params)
                rounds.append(peak)
            peak = statistics.median(rounds)
            row = {"params": params, "peak": peak, "rounds": rounds}
            row["over_stock"] = peak - results[layout].get("stock", row)["peak"]
            compressed = params is not None and params["type"] != "none"
            row["expected"] = RESIDUAL + message_bytes(params) if compressed else 0.0
            results[layout][name] = row
            print(
                f"{name:30}{peak:8.2f}{row['over_stock']:12.2f}{row['expected']:10.2f}", flush=True
            )
    shown = {"options": vars(options), "parameters": parameters, "layouts": results}
    path = report.write("memory", shown)
    draw(results, path)
    print(f"written: {path} and {path.with_suffix('.png').name}")


if __name__ == "__main__":
    main()
