"""Step time on GPUs: two GPUs or two halves of one, in one process and as two workers.

The workers sum over TCP on this host (RING; NCCL refuses two replicas on one GPU), as they would
over a network without RDMA. Writes results/gpu_steps.json and .png.

    python benchmarks/gpu_steps.py
    python benchmarks/gpu_steps.py --rows --name gpu_rows   # of a table, beside full precision
    python benchmarks/gpu_steps.py --device CPU --steps 3   # to try the program itself
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import report
import tensorflow as tf
from matplotlib import pyplot as plt

import tf_gc
from tf_gc.launch.tasks import on_this_host

INPUTS, CLASSES = 1024, 10
WIDTHS = (3072, 2560, 640)
BATCH = 128  # of all replicas
EPOCHS = 4  # the first one, in which functions are traced, does not count
MEGABYTES = 6000  # of a part of a GPU
# "stock" on one host only: stock Keras 3 does not train across workers.
PARAMS: dict[str, Any] = {
    "stock": None,
    "none": tf_gc.NoCompression(),
    "2 bits": tf_gc.TwoBit(warm_up=False),
    "3 bits": tf_gc.Quantized(3, warm_up=False),
    "rank 4": tf_gc.LowRank(4, warm_up=False),
    "bfloat16": tf_gc.Cast("bfloat16"),
    "stock again": None,
}
TABLE = (1_000_000, 64)
ROWS: dict[str, Any] = {
    "full precision": tf_gc.Quantized(sparse=False, warm_up=False),
    "rows": tf_gc.Quantized(sparse=True, warm_up=False),
}
ONE_HOST, WORKERS = "two replicas in one process", "two workers"


def configure(kind: str, parts: int) -> list[str]:
    """Makes `parts` devices and returns their names."""
    physical = tf.config.list_physical_devices(kind)
    if len(physical) < parts or parts == 1:
        memory = MEGABYTES if kind == "GPU" else None
        part = tf.config.LogicalDeviceConfiguration(memory_limit=memory)
        tf.config.set_logical_device_configuration(physical[0], [part] * parts)
    return [f"{kind}:{i}" for i in range(parts)]


def strategy_of(params: Any, devices: list[str]) -> tf.distribute.Strategy:
    if len(devices) > 1:
        if params is None:
            return tf.distribute.MirroredStrategy(devices)
        return tf_gc.CompressedMirroredStrategy(devices, params)
    experimental = tf.distribute.experimental
    return tf_gc.CompressedMultiWorkerMirroredStrategy(
        communication_options=experimental.CommunicationOptions(
            implementation=experimental.CommunicationImplementation.RING
        ),
        compression_params=params,
    )


class EpochTimes(keras.callbacks.Callback):
    """Notes the seconds of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._start = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds.append(time.perf_counter() - self._start)


def milliseconds(params: Any, devices: list[str], steps: int, rows: bool) -> list[float]:
    """Returns the time of a step in each epoch but the first, in milliseconds."""
    strategy = strategy_of(params, devices)
    with strategy.scope():
        hidden = [keras.layers.Dense(width, activation="relu") for width in WIDTHS]
        if rows:
            hidden = [keras.layers.Embedding(*TABLE), keras.layers.GlobalAveragePooling1D()]
        model = keras.Sequential([keras.Input((INPUTS,)), *hidden, keras.layers.Dense(CLASSES)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    random = np.random.default_rng(0)
    x, y = random.normal(size=(BATCH, INPUTS)).astype("f"), random.integers(CLASSES, size=BATCH)
    if rows:
        x = (random.zipf(1.4, size=x.shape) % TABLE[0]).astype("i")
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    data = tf.data.Dataset.from_tensors((x, y)).cache().repeat().with_options(options)
    times = EpochTimes()
    model.fit(data, steps_per_epoch=steps, epochs=EPOCHS, verbose=0, callbacks=[times])
    return [1e3 * seconds / steps for seconds in times.seconds[1:]]


def measure(options: argparse.Namespace) -> None:
    """Is one process of the benchmark: writes what it measured to `options.output`."""
    across = "TF_CONFIG" in os.environ
    devices = configure(options.device, 1 if across else 2)
    found = {
        name: milliseconds(params, devices, options.steps, options.rows)
        for name, params in (ROWS if options.rows else PARAMS).items()
        if params is not None or not across
    }
    Path(options.output).write_text(json.dumps(found))


def run(options: argparse.Namespace, environments: list[dict[str, str]]) -> dict[str, list[float]]:
    """Runs a process in each environment and returns what the first one measured."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [str(Path(folder, str(i))) for i in range(len(environments))]
        processes = [
            subprocess.Popen(
                [sys.executable, __file__, *sys.argv[1:], "--output", output],
                env=environment,
            )
            for environment, output in zip(environments, outputs, strict=True)
        ]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit("a process of the benchmark failed")
        return json.loads(Path(outputs[0]).read_text())


def draw(result: dict[str, Any], path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(9, 3))
    for axis, setup in zip(axes, (ONE_HOST, WORKERS), strict=True):
        medians = {name: statistics.median(ms) for name, ms in result[setup].items()}
        bars = axis.barh(list(medians), list(medians.values()))
        axis.bar_label(bars, fmt="%.1f", padding=3)
        axis.invert_yaxis()
        axis.margins(x=0.15)
        axis.set(title=setup, xlabel="ms a step")
    figure.suptitle(f"{result['parameters'] / 1e6:.1f} M parameters, {result['device']}")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=["GPU", "CPU"], default="GPU")
    parser.add_argument("--steps", type=int, default=60, help="of an epoch")
    parser.add_argument("--rows", action="store_true", help="of a model that is a table")
    parser.add_argument("--name", default="gpu_steps", help="of the files written")
    parser.add_argument("--output", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.output:
        measure(options)
        return
    device = tf.config.list_physical_devices(options.device)[0]
    sizes = [*TABLE, CLASSES] if options.rows else [INPUTS, *WIDTHS, CLASSES]
    result = {
        "device": tf.config.experimental.get_device_details(device).get("device_name", "CPU"),
        "parameters": sum((a + 1) * b for a, b in itertools.pairwise(sizes)),
        ONE_HOST: run(options, [dict(os.environ)]),
        WORKERS: run(options, [task.environment() for task in on_this_host(2)]),
    }
    print(json.dumps(result, indent=1))
    draw(result, report.write(options.name, result).with_suffix(".png"))


if __name__ == "__main__":
    main()
