"""A step with `jit_compile=True` against one without: its time, its loss, and the first step.

Trains the same model twice in one process, on all GPUs, or on two CPU replicas without any. The two
take turns of a few steps. Losses are compared step by step.

    python benchmarks/xla.py

Writes results/xla.json.
"""

import argparse
import dataclasses
import os
import statistics
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import models
import numpy as np
import report
import tensorflow as tf

import tf_gc

BATCHES = 8  # different ones


@dataclasses.dataclass
class Run:
    strategy: tf_gc.CompressedMirroredStrategy
    model: keras.Model
    batches: Iterator[Any]
    seconds: list[float] = dataclasses.field(default_factory=list)
    processor_seconds: list[float] = dataclasses.field(default_factory=list)
    losses: list[float] = dataclasses.field(default_factory=list)

    def step(self) -> None:
        self.model.reset_metrics()
        start, processor = time.perf_counter(), time.process_time()
        loss = float(self.model.train_function(self.batches)["loss"])
        self.seconds.append(time.perf_counter() - start)
        self.processor_seconds.append(time.process_time() - processor)
        self.losses.append(loss)


def start(name: str, batch: int, xla: bool) -> Run:
    keras.utils.set_random_seed(7)
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    params = tf_gc.Quantized(warm_up=False)
    strategy = tf_gc.CompressedMirroredStrategy(gpus or ["CPU:0", "CPU:1"], params)
    with strategy.scope():
        task = models.MODELS[name](BATCHES * batch)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        task.model.compile(task.optimizer(), loss, jit_compile=xla)
        task.model.optimizer.build(task.model.trainable_variables)
    dataset = tf.data.Dataset.from_tensor_slices((task.x, task.y)).batch(batch, drop_remainder=True)
    task.model.make_train_function()
    return Run(
        strategy, task.model, iter(strategy.experimental_distribute_dataset(dataset.repeat()))
    )


def measure(name: str, batch: int, turns: int, steps: int) -> dict[str, Any]:
    state = models._random.bit_generator.state
    runs = {}
    for xla in (False, True):
        models._random.bit_generator.state = state  # the same data
        runs[xla] = start(name, batch, xla)
        runs[xla].step()
    for _ in range(turns):
        for run in runs.values():
            for _ in range(steps):
                run.step()
    plain, xla = runs[False], runs[True]
    result = {
        "batch": batch,
        "steps": len(plain.losses),
        "ms": {key: _ms(run.seconds) for key, run in _named(runs)},
        "processor_ms": {key: _ms(run.processor_seconds) for key, run in _named(runs)},
        "first_seconds": {key: round(run.seconds[0], 2) for key, run in _named(runs)},
        "sent_bytes": {key: run.strategy.traffic.sent_bytes for key, run in _named(runs)},
        "last_loss": {key: run.losses[-1] for key, run in _named(runs)},
        "largest_relative_difference": float(
            np.max(np.abs(np.subtract(plain.losses, xla.losses)) / np.abs(plain.losses))
        ),
    }
    print(name, result, flush=True)
    return result


def _ms(seconds: list[float]) -> float:
    return round(1e3 * statistics.median(seconds[1:]), 1)


def _named(runs: dict[bool, Run]) -> list[tuple[str, Run]]:
    return [("xla" if xla else "plain", run) for xla, run in runs.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    chosen = ["mlp", "resnet", "lstm", "transformer"]
    parser.add_argument("--models", nargs="+", choices=models.MODELS, default=chosen)
    parser.add_argument("--batch-size", type=int, default=32, help="of all replicas")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--steps", type=int, default=10, help="of a turn")
    options = parser.parse_args()
    if not tf.config.list_physical_devices("GPU"):
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )
    results = {
        name: measure(name, options.batch_size, options.turns, options.steps)
        for name in options.models
    }
    print(f"written: {report.write('xla', {'models': results})}")


if __name__ == "__main__":
    main()
