"""Long training: memory, step time, threads and graphs must not grow.

Trains a small model by `fit` for 20,000 steps of one epoch, on two replicas of one process and on
two worker processes under both flat plans, and notes every 1,000 steps what each process uses.
(One epoch, since each leaves about 2 MB behind under the stock strategy, too.) Writes
results/soak.json and .png.

    python benchmarks/soak.py
"""

import argparse
import itertools
import json
import os
import statistics
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import local_jobs
import matplotlib
import numpy as np
import report
import tensorflow as tf
from tensorflow.python.eager import context

import tf_gc

matplotlib.use("Agg")
from matplotlib import pyplot as plt

# Strategy, worker processes and codec of each job.
JOBS = {
    "stock, 1 process": ("stock", 1, {}),
    "2-bit, 1 process": ("compressed", 1, {"type": "2bit"}),
    "none, 2 workers": ("compressed", 2, {"type": "none"}),
    "2-bit, 2 workers, all-gather": ("compressed", 2, {"type": "2bit", "plan": "all_gather"}),
    "2-bit, 2 workers, scatter-gather": (
        "compressed",
        *(2, {"type": "2bit", "plan": "scatter_gather"}),
    ),
}
BATCH, INPUTS, UNITS, CLASSES = 32, 64, 128, 10
PANELS = {
    "resident_mb": "resident memory, MB",
    "step_ms": "median step, ms",
    "threads": "threads",
    "functions": "functions in TensorFlow's library",
}


class Soak(keras.callbacks.Callback):
    """Notes the time of each step and, now and then, what the process uses."""

    def __init__(self, strategy: tf.distribute.Strategy, every: int) -> None:
        super().__init__()
        self.strategy, self.every = strategy, every
        self.seconds: list[float] = []
        self.rows: list[dict[str, float]] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.begin = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seconds.append(time.perf_counter() - self.begin)
        if len(self.seconds) < self.every:
            return
        status = local_jobs.status()
        self.rows.append(
            {
                "steps": batch + 1,
                "step_ms": 1e3 * statistics.median(self.seconds),
                "resident_mb": status["VmRSS"] / 1024,
                "threads": status["Threads"],
                "functions": len(context.context().list_function_names()),
                "residuals": len(getattr(self.strategy, "compression_state", ())),
            }
        )
        self.seconds.clear()


def make_strategy(task: dict[str, Any]) -> tf.distribute.Strategy:
    if task["workers"] > 1:
        return tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=task["params"])
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    if task["strategy"] == "stock":
        return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    return tf_gc.CompressedMirroredStrategy(["CPU:0", "CPU:1"], task["params"])


def job(task: dict[str, Any]) -> None:
    """What a process of a job does: trains, and prints what it noted."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = make_strategy(task)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [keras.layers.Dense(UNITS, activation="relu") for _ in range(2)]
        model = keras.Sequential([keras.Input((INPUTS,)), *layers, keras.layers.Dense(CLASSES)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(1e-4), loss)
    random = np.random.default_rng(1)
    x = random.random((100 * BATCH, INPUTS), dtype=np.float32)
    y = random.integers(CLASSES, size=100 * BATCH)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(2 * BATCH)
    soak = Soak(strategy, task["every"])
    model.fit(data.repeat(task["steps"] // len(data)), verbose=0, callbacks=[soak])
    print(json.dumps(soak.rows))


def growth(rows: list[dict[str, float]], key: str) -> float:
    """Returns the mean over the last quarter of the steps less that over the second quarter.

    The first quarter is left out: allocators and thread pools settle in it.
    """
    quarter = len(rows) // 4
    values = [row[key] for row in rows]
    return statistics.mean(values[-quarter:]) - statistics.mean(values[quarter : 2 * quarter])


def draw(results: dict[str, Any], path: Any) -> None:
    figure, all_axes = plt.subplots(2, 2, figsize=(9, 6), layout="constrained", sharex=True)
    for axes, (key, label) in zip(all_axes.flat, PANELS.items(), strict=True):
        for (name, result), line in zip(results.items(), itertools.cycle(("-", "--"))):
            rows = result["processes"][0]
            steps = [row["steps"] / 1000 for row in rows]
            axes.plot(steps, [row[key] for row in rows], line, label=name)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(label)
    for axes in all_axes[1]:
        axes.set_xlabel("thousand steps")
    all_axes[0, 0].legend(fontsize="small")
    figure.savefig(path.with_suffix(".png"), dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=1000, help="steps between notes")
    parser.add_argument("--limit", type=float, default=3600, help="seconds for each job")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job(json.loads(options.job))
        return

    results = {}
    columns = f"{'MB':>8}{'growth':>8}{'ms':>8}{'growth':>8}{'threads':>9}{'functions':>11}"
    print(f"{'':34}{columns}")
    for name, (strategy, workers, params) in JOBS.items():
        task = {"strategy": strategy, "workers": workers, "params": params}
        task |= {"steps": options.steps, "every": options.every}
        processes = local_jobs.run(__file__, task, workers, options.limit)
        results[name] = {
            "workers": workers,
            "params": params,
            "growth": {key: growth(processes[0], key) for key in (*PANELS, "residuals")},
            "processes": processes,
        }
        last, grown = processes[0][-1], results[name]["growth"]
        print(
            f"{name:34}{last['resident_mb']:8.1f}{grown['resident_mb']:+8.1f}"
            f"{last['step_ms']:8.2f}{grown['step_ms']:+8.2f}"
            f"{last['threads']:4.0f} {grown['threads']:+4.1f}"
            f"{last['functions']:6.0f} {grown['functions']:+4.1f}",
            flush=True,
        )
    path = report.write("soak", {"options": {"steps": options.steps}, "jobs": results})
    draw(results, path)
    print(f"written: {path} and {path.with_suffix('.png').name}")


if __name__ == "__main__":
    main()
