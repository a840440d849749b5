"""How well training ends with compressed gradients, on many models, optimizers and seeds.

Each cell is a model with an optimizer (quality_cells.py). For a seed all variants start with the
same weights and see the same batches. The learning rates are chosen for uncompressed training,
once, by `--tune`.

Appends each run to results/quality_runs.jsonl and makes those that are missing: it may be stopped
at any time, and several processes may share the work by `--part`.

    python benchmarks/quality.py --tune
    python benchmarks/quality.py --quick
    python benchmarks/quality.py --part 1/2 & python benchmarks/quality.py --part 2/2
    python benchmarks/quality.py --downloaded --seeds 3
    python benchmarks/quality.py --report
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import quality_data
import quality_plot
import quality_report
import report
import tensorflow as tf
from quality_cells import CELLS, DOWNLOADED, LATER, OPTIMIZERS, QUICK, Cell
from quality_report import BASELINE
from quality_tasks import TASKS

import tf_gc
from tf_gc.params import CompressionParams, from_params

MOST_REPLICAS = 16
# The default under both plans of one host; what other numbers of bits, the warm-up and automatic
# scales cost and gain.
VARIANTS: dict[str, Any] = {
    BASELINE: {"type": "none"},
    "all-gather": {"type": "quantized", "plan": "all_gather"},
    "scatter-gather": {"type": "quantized", "plan": "scatter_gather"},
    "1 bit": {"type": "quantized", "bits": 1, "plan": "all_gather"},
    "2 bits": {"type": "quantized", "bits": 2, "plan": "all_gather"},
    "4 bits": {"type": "quantized", "bits": 4, "plan": "all_gather"},
    "4 bits, scatter-gather": {"type": "quantized", "bits": 4, "plan": "scatter_gather"},
    "8 bits": {"type": "quantized", "bits": 8, "plan": "all_gather"},
    "8 bits, scatter-gather": {"type": "quantized", "bits": 8, "plan": "scatter_gather"},
    "no warm-up": {"type": "quantized", "plan": "all_gather", "warm_up": False},
    "threshold 0.5": {"type": "2bit", "threshold": 0.5, "plan": "all_gather"},
}
# Bits of an element in a message, scales included.
BITS = {"1 bit": 1.125, "2 bits": 2.125, "all-gather": 3.125, "4 bits": 4.125}
MAIN_VARIANTS = [BASELINE, "all-gather", "scatter-gather"]
TUNING_SEEDS = (1001,)  # not one of those that are measured


class Trainer:
    """A model with its optimizer under a strategy; traced once, and trained for each seed."""

    def __init__(self, cell: Cell, params: CompressionParams, rate: float) -> None:
        self.cell, self.task = cell, TASKS[cell.task]
        self.strategy = tf_gc.CompressedMirroredStrategy(
            [f"CPU:{i}" for i in range(cell.replicas)], params
        )
        self.train_data, test_data = self.task.load()
        self.steps_per_epoch = len(self.train_data[0]) // self.task.batch_size
        make, _ = OPTIMIZERS[cell.optimizer]
        with self.strategy.scope():
            self.model = self.task.make_model()
            self.optimizer = make(rate, self.steps_per_epoch * self.task.epochs)
            self.optimizer.build(self.model.trainable_variables)
        optimizer = self.optimizer
        self.averages = optimizer._model_variables_moving_average if optimizer.use_ema else []
        self.initial_state = [variable.numpy() for variable in self.optimizer.variables]
        at_a_time = self.task.test_batch or len(test_data[0])
        self.test_batches = [
            tuple(tf.constant(part[i : i + at_a_time]) for part in test_data)
            for i in range(0, len(test_data[0]), at_a_time)
        ]

        @tf.function
        def step(x: tf.Tensor, y: tf.Tensor) -> None:
            self.strategy.run(self.replica_step, (x, y))

        @tf.function
        def evaluate(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            return self.task.metric.of(y, self.model(x, training=False))

        self.step, self.evaluate = step, evaluate

    def replica_step(self, x: tf.Tensor, y: tf.Tensor) -> None:
        """One replica's part of a step; x and y have a row for each replica."""
        rank = tf.distribute.get_replica_context().replica_id_in_sync_group
        with tf.GradientTape() as tape:
            # Gradients are summed over replicas: they add up to the gradient of the mean loss.
            loss = self.task.loss(y[rank], self.model(x[rank], training=True))
            loss /= self.cell.replicas
        variables = self.model.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))

    def run(self, seed: int) -> dict[str, list[float]]:
        """Trains from the start; returns the quality before, every few steps, and at the end.

        If an optimizer averages weights, "curve" is the quality of the averages, with which
        training ends, and "unaveraged" the quality of the weights themselves.
        """
        keras.utils.set_random_seed(seed)
        self.model.set_weights(self.task.make_model().get_weights())
        for variable, value in zip(self.optimizer.variables, self.initial_state, strict=True):
            variable.assign(value)
        if self.averages:
            assign(self.averages, self.model.trainable_variables)
        self.strategy.compression_state.reset()

        random = np.random.default_rng(seed)
        x, y = self.train_data
        found = [self.qualities()]
        done = 0
        for _ in range(self.task.epochs):
            order = random.permutation(len(x))[: self.steps_per_epoch * self.task.batch_size]
            for chosen in order.reshape(self.steps_per_epoch, self.cell.replicas, -1):
                self.step(tf.constant(x[chosen]), tf.constant(y[chosen]))
                done += 1
                if done % self.task.evaluate_every == 0:
                    found.append(self.qualities())
        found.append(self.qualities())
        return {name: [values[name] for values in found] for name in found[0]}

    def qualities(self) -> dict[str, float]:
        """Returns the points of the curves at this step."""
        of_weights = self.quality()
        if not self.averages:
            return {"curve": of_weights}
        variables = self.model.trainable_variables
        weights = [variable.numpy() for variable in variables]
        assign(variables, self.averages)
        of_averages = self.quality()
        assign(variables, weights)
        return {"curve": of_averages, "unaveraged": of_weights}

    def quality(self) -> float:
        mean = np.mean([float(self.evaluate(x, y)) for x, y in self.test_batches])
        return float(f"{self.task.metric.value(mean):.5g}")


def assign(variables: list[Any], values: list[Any]) -> None:
    """Assigns to each of Keras' variables its value."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cells", nargs="+", default=[], help="beginnings of names; all of them")
    parser.add_argument("--quick", action="store_true", help="four cells and two seeds")
    parser.add_argument("--downloaded", action="store_true", help="the cells with downloaded data")
    parser.add_argument("--later", action="store_true", help="the cells that were added later")
    parser.add_argument("--variants", nargs="*", choices=VARIANTS, default=MAIN_VARIANTS)
    parser.add_argument(
        "--params", nargs="+", default=[], metavar="JSON", help="compression_params to try as well"
    )
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--part", default="1/1", help="of the cells, such as 1/2")
    parser.add_argument("--tune", action="store_true", help="choose the learning rates")
    parser.add_argument(
        "--report", action="store_true", help="train nothing: table and pictures of what is there"
    )
    parser.add_argument("--directory", type=Path, default=report.RESULTS, help="of the results")
    options = parser.parse_args()
    if options.quick:
        options.cells, options.seeds = [*options.cells, *QUICK], min(options.seeds, 2)
    return options


def cells(options: argparse.Namespace) -> list[Cell]:
    """Returns the cells that were asked for."""
    asked = tuple(options.cells) or ("",)
    chosen = [
        cell
        for cell in (DOWNLOADED if options.downloaded else LATER if options.later else CELLS)
        if cell.name.startswith(asked)
    ]
    part, parts = map(int, options.part.split("/"))
    return chosen[part - 1 :: parts]


def tune(options: argparse.Namespace, path: Path) -> None:
    """Trains uncompressed with each learning rate of the grids, and appends the results.

    Where the best rate is the first or the last of a grid, the grid goes on.
    """
    for cell in cells(options):
        if cell.rate:
            continue
        known = {line["rate"] for line in quality_report.lines(path) if line["cell"] == cell.name}
        to_try = [rate for rate in OPTIMIZERS[cell.optimizer][1] if rate not in known]
        while True:
            for rate in to_try:
                start = time.perf_counter()
                trainer = Trainer(cell, from_params({"type": "none"}), rate)
                final = [trainer.run(seed)["curve"][-1] for seed in TUNING_SEEDS]
                seconds = time.perf_counter() - start
                print(cell.name, rate, final, f"({seconds:.1f} s)", flush=True)
                quality_report.append(path, {"cell": cell.name, "rate": rate, "final": final})
            known |= set(to_try)
            best = best_rates(path)[cell.name]
            to_try = {min(known): [best / 2], max(known): [best * 2]}.get(best, [])
            if not to_try:
                break


def best_rates(path: Path) -> dict[str, float]:
    """Returns the best learning rate of each cell, by what `tune` wrote."""
    best: dict[str, tuple[float, float]] = {}
    for line in quality_report.lines(path):
        # One that diverged is worse than any.
        mean = float(np.mean(line["final"]))
        candidate = (mean if np.isfinite(mean) else float("inf"), line["rate"])
        best[line["cell"]] = min(best.get(line["cell"], candidate), candidate)
    return {name: rate for name, (_, rate) in best.items()}


def variants(options: argparse.Namespace) -> Iterator[tuple[str, CompressionParams]]:
    """Returns what is compared, the baseline first."""
    for name in options.variants:
        yield name, from_params(VARIANTS[name])
    for text in options.params:
        yield text, from_params(json.loads(text))


def measure(options: argparse.Namespace, path: Path, rates: dict[str, float]) -> list[Any]:
    """Makes the runs that are missing, and returns those that were asked for."""
    wanted = []
    for cell in cells(options):
        task, rate = TASKS[cell.task], cell.rate or rates[cell.name]
        settings = {"epochs": task.epochs, "rate": rate, "replicas": cell.replicas}
        if task.load in quality_data.OF_TOPICS:
            settings["text"] = f"Python {platform.python_version()}"
        for variant, params in variants(options):
            trainer = None
            for seed in range(1, options.seeds + 1):
                key = {"cell": cell.name, "variant": variant, "seed": seed, **settings}
                run = quality_report.find(path, key)
                if run is None:
                    start = time.perf_counter()
                    trainer = trainer or Trainer(cell, params, rate)
                    curves = trainer.run(seed)
                    run = {**key, **curves, "every": task.evaluate_every}
                    run["warm_up_steps"] = trainer.strategy.compression_state.warm_up_steps
                    quality_report.append(path, run)
                    seconds = time.perf_counter() - start
                    print(
                        cell.name, variant, seed, run["curve"][-1], f"({seconds:.1f} s)", flush=True
                    )
                wanted.append(run)
    return wanted


def set_devices() -> None:
    """Makes logical devices, with no more threads than steps this small can use."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * MOST_REPLICAS,
    )


def main() -> None:
    options = parse_options()
    if options.report:
        write_report(options.directory)
        return
    set_devices()
    rates_path = options.directory / "quality_rates.jsonl"
    if options.tune:
        tune(options, rates_path)
        return
    rates = best_rates(rates_path)
    missing = [cell.name for cell in cells(options) if not cell.rate and cell.name not in rates]
    if missing:
        sys.exit(f"no learning rates for {missing}: run with --tune first")
    runs = measure(options, options.directory / "quality_runs.jsonl", rates)
    quality_report.show(quality_report.summarize(runs))


def write_report(directory: Path) -> None:
    """Writes a table and the pictures of the recorded runs with the best learning rates."""
    rates = best_rates(directory / "quality_rates.jsonl")
    rates |= {cell.name: cell.rate for cell in LATER if cell.rate}
    runs = [
        run
        for run in quality_report.lines(directory / "quality_runs.jsonl")
        if run["variant"] in VARIANTS and run["rate"] == rates[run["cell"]]
    ]
    rows = quality_report.summarize(runs)
    quality_report.show(rows)
    for cells, name in ((CELLS, "quality"), (DOWNLOADED, "quality_downloaded")):
        names = [cell.name for cell in cells]
        mine = [row for row in rows if row["cell"] in names]
        quality_report.write_table(mine, MAIN_VARIANTS, directory / f"{name}.md")
        quality_plot.draw_cells(cells, runs, directory / f"{name}.png")
    later = [row for row in rows if row["cell"] in [cell.name for cell in LATER]]
    compared = [BASELINE, "all-gather", "4 bits"]
    quality_report.write_table(later, compared, directory / "quality_later.md")
    rows = [row for row in rows if row not in later]
    others = [variant for variant in VARIANTS if variant not in MAIN_VARIANTS]
    quality_report.write_table(rows, [BASELINE, *others], directory / "quality_variants.md")
    quality_plot.draw_precision(rows, BITS, directory / "quality_precision.png")


if __name__ == "__main__":
    main()
