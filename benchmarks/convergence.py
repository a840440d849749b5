"""Final quality and speed of convergence: uncompressed training against each codec and plan.

Trains five small models on four replicas (logical CPU devices) with the defaults of tf_gc, with
other codecs, and without compression: for a seed all start with the same weights and see the same
batches. Learning rates are constant. They are chosen for uncompressed training, once, by `--tune`
from the grids in convergence_tasks.py, and are the same for all.

Writes results/convergence.json after each run, and continues what is there; runs that were made
with other settings are made again. At the end it prints a table and draws the learning curves.

    python benchmarks/convergence.py --tune
    python benchmarks/convergence.py
    python benchmarks/convergence.py --tasks "digits MLP" --optimizers adam --seeds 3
"""

import argparse
import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import convergence_report
import keras
import numpy as np
import report
import tensorflow as tf
from convergence_report import BASELINE, Run
from convergence_tasks import OPTIMIZERS, TASKS, Task

import tf_gc

REPLICAS = 4
VARIANTS: dict[str, dict[str, Any]] = {
    BASELINE: {"type": "none"},
    "auto all-gather": {"type": "2bit", "plan": "all_gather"},
    "auto scatter-gather": {"type": "2bit", "plan": "scatter_gather"},
    "fixed 0.5": {"type": "2bit", "threshold": 0.5},
    "1-bit": {"type": "1bit"},
}
TUNING_SEEDS = (1001, 1002)  # not those that are measured


class Trainer:
    """A model with its optimizer under a strategy; traced once, and trained for each seed."""

    def __init__(self, task: Task, optimizer: str, variant: str, rate: float) -> None:
        self.task = task
        self.strategy = tf_gc.CompressedMirroredStrategy(
            [f"CPU:{i}" for i in range(REPLICAS)], VARIANTS[variant]
        )
        with self.strategy.scope():
            self.model = task.make_model()
            self.optimizer = OPTIMIZERS[optimizer](rate)
            self.optimizer.build(self.model.trainable_variables)
        self.initial_state = [variable.numpy() for variable in self.optimizer.variables]
        self.train_data, test_data = task.load()
        x_test, y_test = (tf.constant(part) for part in test_data)

        @tf.function
        def step(x: tf.Tensor, y: tf.Tensor) -> None:
            self.strategy.run(self.replica_step, (x, y))

        @tf.function
        def evaluate() -> tf.Tensor:
            return task.metric.of(y_test, self.model(x_test, training=False))

        self.step, self.evaluate = step, evaluate

    def replica_step(self, x: tf.Tensor, y: tf.Tensor) -> None:
        """One replica's part of a step; x and y have a row for each replica."""
        rank = tf.distribute.get_replica_context().replica_id_in_sync_group
        with tf.GradientTape() as tape:
            # Gradients are summed over replicas: so they add up to those of the mean loss.
            loss = self.task.loss(y[rank], self.model(x[rank], training=True)) / REPLICAS
        variables = self.model.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))

    def run(self, seed: int) -> list[float]:
        """Trains from the start; returns the quality before, and every few steps."""
        keras.utils.set_random_seed(seed)
        self.model.set_weights(self.task.make_model().get_weights())
        for variable, value in zip(self.optimizer.variables, self.initial_state, strict=True):
            variable.assign(value)
        self.strategy.compression_state.reset()

        random = np.random.default_rng(seed)
        x, y = self.train_data
        steps = len(x) // self.task.batch_size
        curve = [self.quality()]
        done = 0
        for _ in range(self.task.epochs):
            order = random.permutation(len(x))[: steps * self.task.batch_size]
            for chosen in order.reshape(steps, REPLICAS, -1):
                self.step(tf.constant(x[chosen]), tf.constant(y[chosen]))
                done += 1
                if done % self.task.evaluate_every == 0:
                    curve.append(self.quality())
        return curve

    def quality(self) -> float:
        return float(f"{float(self.evaluate()):.5g}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS))
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--tune", action="store_true", help="choose the learning rates")
    parser.add_argument("--directory", type=Path, default=report.RESULTS, help="of the results")
    return parser.parse_args()


def cells(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Returns the tasks and optimizers that were asked for."""
    return [
        (task, optimizer)
        for task in options.tasks
        for optimizer in TASKS[task].grids
        if optimizer in options.optimizers
    ]


def tune(options: argparse.Namespace, path: Path) -> None:
    """Trains uncompressed with each learning rate of the grids, and writes the best ones."""
    results = json.loads(path.read_text())["tasks"] if path.exists() else {}
    for name, optimizer in cells(options):
        task = TASKS[name]
        final = {}
        for rate in task.grids[optimizer]:
            trainer = Trainer(task, optimizer, BASELINE, rate)
            curves = [trainer.run(seed) for seed in TUNING_SEEDS]
            # One that diverged is worse than any.
            worst = float("inf") if task.metric.is_ratio else 0.0
            mean = float(np.mean([curve[-1] for curve in curves]))
            final[rate] = mean if np.isfinite(mean) else worst
        best = (min if task.metric.is_ratio else max)(final, key=lambda rate: final[rate])
        print(f"{name}, {optimizer}: {final}, chosen {best}", flush=True)
        results.setdefault(name, {})[optimizer] = {"rate": best, "final": final}
        report.write(path.stem, {"seeds": TUNING_SEEDS, "tasks": results}, path.parent)


def measure(options: argparse.Namespace, path: Path, rates: dict[str, Any]) -> list[Run]:
    """Makes the runs that are missing, saves after each; returns those asked for."""
    runs = convergence_report.load(path)
    head = {
        "command": shlex.join(["python", "benchmarks/convergence.py", *sys.argv[1:]]),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "replicas": REPLICAS,
    }
    wanted = []
    for name, optimizer in cells(options):
        task, rate = TASKS[name], rates[name][optimizer]["rate"]
        settings = {"epochs": task.epochs, "rate": rate, "every": task.evaluate_every}
        for variant in options.variants:
            trainer = None
            for seed in range(1, options.seeds + 1):
                key = {"task": name, "optimizer": optimizer, "variant": variant, "seed": seed}
                same = [run for run in runs if key.items() <= run.items()]
                run = next((run for run in same if settings.items() <= run.items()), None)
                if run is None:
                    trainer = trainer or Trainer(task, optimizer, variant, rate)
                    start = time.perf_counter()
                    curve = trainer.run(seed)
                    dense = trainer.strategy.compression_state.warm_up_steps
                    run = {**key, **settings, "warm_up_steps": dense, "curve": curve}
                    runs = [other for other in runs if other not in same] + [run]
                    summary = convergence_report.summarize(runs)
                    convergence_report.save(path, {**head, "summary": summary}, runs)
                    seconds = time.perf_counter() - start
                    print(*key.values(), curve[-1], f"({seconds:.1f} s)", flush=True)
                wanted.append(run)
    return wanted


def main() -> None:
    options = parse_options()
    # Small steps: more threads than replicas would only wait for each other.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(REPLICAS)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * REPLICAS,
    )
    rates_path = options.directory / "convergence_rates.json"
    if options.tune:
        tune(options, rates_path)
        return
    if not rates_path.exists():
        raise SystemExit(f"{rates_path} is missing: run with --tune first")
    path = options.directory / "convergence.json"
    runs = measure(options, path, json.loads(rates_path.read_text())["tasks"])
    convergence_report.show(convergence_report.summarize(runs))
    for picture in convergence_report.draw(runs, options.directory):
        print(f"written: {picture}")


if __name__ == "__main__":
    main()
