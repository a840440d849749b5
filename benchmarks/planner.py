"""Predictions of `python -m tf_gc.planner` against the step times that network.py recorded.

Predicts every cell of results/network_*.json: models, rates, numbers of workers, ways to send. The
planner's three constants of TensorFlow's transport, its time for each collective, round and byte,
are fitted on three files; all others are set aside, and reported apart. Those of AFTERWARDS were
measured when model and constants were fixed. Computing takes what the recorded mode `alone` took.
Encoding and decoding are measured on this machine with --measure, with one thread, as in
network.py; without it, those of the last time are read again. Prints the constants and the errors;
writes results/planner.json and .png.

    python benchmarks/planner.py --measure
    python benchmarks/planner.py
"""

import argparse
import dataclasses
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import matplotlib
import network
import numpy as np
import report
import tensorflow as tf

from tf_gc.params import Gradient
from tf_gc.params.from_params import from_params
from tf_gc.planner import measure
from tf_gc.planner.prediction import STOCK, Choice, CodecCost, Gradients, predict
from tf_gc.planner.subject import make_subject
from tf_gc.planner.time_model import BYTE, LATENCY, LAUNCH, Compute, Link

matplotlib.use("Agg")
from matplotlib import pyplot as plt

FITTED = ("network_mlp", "network_resnet", "network_small")
AFTERWARDS = (
    "network_vgg_small_batch",
    "network_lstm_small_batch",
    "network_mlp_workers",
    "network_mlp_wires",
)
# In these files, sums of two-bit codes had two bits as well.
COARSE_SUMS = ("network_mlp_plans_auto", "network_mlp_4_workers")
# In this one, sums with automatic scales were sent in a way that there is no longer.
OTHER_SUMS = ("network_mlp_rank_8",)
# In these, three workers chose an all-gather.
ALL_GATHER = ("network_lstm_small_batch", "network_vgg_small_batch")
THREADS = 1
PREDICTED = ("fixed", "auto", "default", "4 bits")  # modes of network.py that compress
COLORS = {"set aside": "#0b62a4", "measured afterwards": "#2a9d4a", "fitted": "#d9560b"}

# Seconds of TensorFlow's transport: to start a collective, for a round, for a byte.
Constants: TypeAlias = tuple[float, float, float]
OURS: Constants = (LAUNCH, LATENCY, BYTE)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A recorded step time.

    Attributes:
      file: the name of the recorded result.
      model: a key of models.MODELS.
      batch_size: of one worker.
      mode: as in network.py.
      workers: how many there were.
      bits_per_second: the rate of their links.
      alone: the step of a worker that sends nothing, beside as many others.
      contention: how many threads of workers share a core.
      measured: the step's median seconds.
      sent_bytes: what `strategy.traffic` said, if a strategy of tf_gc was measured as well.
    """

    file: str
    model: str
    batch_size: int
    mode: str
    workers: int
    bits_per_second: float
    alone: float
    contention: float
    measured: float
    sent_bytes: int | None

    @property
    def task(self) -> str:
        """The model with its batch size."""
        return f"{self.model}, batch {self.batch_size}"

    @property
    def base(self) -> str:
        """The mode without a plan and a wire."""
        return self.mode.partition(":")[0]

    @property
    def group(self) -> str:
        """A key of COLORS."""
        if self.file in FITTED:
            return "fitted"
        return "measured afterwards" if self.file in AFTERWARDS else "set aside"

    def choice(self) -> Choice:
        if self.mode == "stock":
            return STOCK
        # A mode that says nothing of the wire has the packed one: links were not shaped yet when
        # the workers chose. And sparse gradients were sent in full precision.
        params: dict[str, Any] = {"wire": "packed", "sparse": False}
        if self.file in COARSE_SUMS and self.base == "auto":
            params["sum_bits"] = 2
        if self.file in ALL_GATHER:
            params["plan"] = "all_gather"
        return Choice(self.mode, from_params(params | network.compression_params(self.mode)))


def recorded_cells() -> list[Cell]:
    """Returns all recorded cells in which something was sent over a shaped link."""
    results = {
        path.stem: json.loads(path.read_text()) for path in report.RESULTS.glob("network_*.json")
    }
    # What a model takes alone beside one other worker, for files that do not say.
    alone_of = {
        (result["options"]["model"], result["options"]["batch_size"]): statistics.median(
            rate["modes"]["alone"]["seconds"] for rate in result["workers"]["2"]["rates"].values()
        )
        for result in results.values()
        if "alone" in result["options"]["modes"] and "2" in result["workers"]
    }
    cells = []
    for name, result in sorted(results.items()):
        options = result["options"]
        for workers, of_workers in result["workers"].items():
            contention = max(1.0, int(workers) * options["threads"] / result["machine"]["cores"])
            for rate, of_rate in of_workers["rates"].items():
                speed = network.network_links.bits_per_second(rate)
                modes = of_rate["modes"]
                task = (options["model"], options["batch_size"])
                known = "alone" in modes or task in alone_of
                if speed is None or options["threads"] != THREADS or not known:
                    continue
                if "alone" in modes:
                    alone = modes["alone"]["seconds"]
                else:
                    alone = alone_of[task] * contention
                cells += [
                    Cell(
                        *(name, *task, mode, int(workers), speed, alone, contention),
                        measured=modes[mode]["seconds"],
                        sent_bytes=modes[mode]["predicted_bytes"],
                    )
                    for mode in modes
                    if mode == "stock"
                    or (mode.partition(":")[0] in PREDICTED and name not in OTHER_SUMS)
                ]
    return cells


def measure_machine(cells: Sequence[Cell], repeats: int) -> dict[str, Any]:
    """Measures each model and each codec of the cells with one thread."""
    import models

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    measured = {}
    for task, cell in {cell.task: cell for cell in cells}.items():
        model = models.MODELS[cell.model](cell.batch_size).model
        subject = make_subject(lambda model=model: model, cell.batch_size)
        compute = measure.measure_compute(subject, repeats)
        values = measure.compute_gradients(subject)
        gradients = measure.describe(subject, values)
        costs = {}
        for mode in {one.base for one in cells if one.task == task} - {"stock"}:
            choice = Choice(mode, from_params(network.MODES[mode]))
            costs[mode] = measure.measure_codec(choice, gradients, values, repeats)
        measured[task] = {
            "compute": dataclasses.asdict(compute),
            "gradients": {
                "gradients": [
                    g and [g.path, g.dtype.name, g.shape, g.sparse] for g in gradients.gradients
                ],
                "sparse_bytes": gradients.sparse_bytes,
                "state_bytes": gradients.state_bytes,
            },
            "costs": {
                mode: {wire: dataclasses.asdict(cost) for wire, cost in by_wire.items()}
                for mode, by_wire in costs.items()
            },
        }
        print(f"{task}: a step takes {1e3 * compute.total:.1f} ms alone", flush=True)
    return measured


class Predictor:
    """Predicts cells from what was measured on this machine."""

    def __init__(self, measured: Mapping[str, Any]) -> None:
        self._compute = {name: Compute(**one["compute"]) for name, one in measured.items()}
        self._gradients = {
            name: Gradients(
                tuple(
                    g and Gradient(g[0], tf.as_dtype(g[1]), tuple(g[2]), g[3])
                    for g in one["gradients"]
                ),
                tuple(one["sparse_bytes"]),
                one["state_bytes"],
            )
            for name, two in measured.items()
            for one in [two["gradients"]]
        }
        self._costs = {
            name: {
                mode: {wire: CodecCost(**cost) for wire, cost in by_wire.items()}
                for mode, by_wire in one["costs"].items()
            }
            for name, one in measured.items()
        }

    def __call__(self, cell: Cell, constants: Constants) -> Any:
        """Returns the prediction of a cell.

        Beside others, a worker takes longer than when this machine was measured, for computing and
        for codecs alike: `alone` says by how much. The transport has to share the cores as well.
        """
        compute = self._compute[cell.task]
        slower = cell.alone / compute.total
        compute, costs = compute.scaled(slower), {}
        if cell.mode != "stock":
            costs[cell.mode] = {
                wire: cost.scaled(slower)
                for wire, cost in self._costs[cell.task][cell.base].items()
            }
        slow = (cell.contention * constant for constant in constants)
        link = Link(cell.workers, cell.bits_per_second, *slow)
        return predict(cell.choice(), self._gradients[cell.task], compute, costs, link)


def fit(cells: Sequence[Cell], predictor: Predictor) -> Constants:
    """Returns the constants of the transport with the least squared error of the logarithm."""

    def error(constants: Constants) -> float:
        return sum(
            math.log(predictor(cell, constants).seconds / cell.measured) ** 2 for cell in cells
        )

    best = (1e-3, 1e-3, 1e-9)
    for step in (2.0, 1.3, 1.1, 1.03, 1.01):  # one after another, in ever smaller steps
        while True:
            tried = [
                tuple(c * step**power if i == changed else c for i, c in enumerate(best))
                for changed in range(len(best))
                for power in (-1, 1)
            ]
            better = min(tried, key=error)
            if error(better) >= error(best):
                break
            best = better
    return best


def summary(errors: Sequence[float]) -> dict[str, float]:
    return {
        "cells": len(errors),
        "median": statistics.median(errors),
        "within_20_percent": sum(error <= 0.2 for error in errors) / len(errors),
        "largest": max(errors),
    }


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6, 5.6), layout="constrained")
    measured = [row["measured"] for row in rows]
    line = np.array([min(measured) / 1.5, max(measured) * 1.5])
    axes.fill_between(line, line / 1.2, line * 1.2, color="0.9", label="within 20%")
    axes.plot(line, line, "k-", linewidth=0.8)
    for group, color in COLORS.items():
        for stock in (True, False):
            points = [
                (row["measured"], row["predicted"])
                for row in rows
                if row["group"] == group and (row["mode"] == "stock") == stock
            ]
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    "s" if stock else "o",
                    color=color,
                    markersize=5,
                    markerfacecolor="none" if stock else color,
                    label=f"{'stock' if stock else 'compressed'}, {group}",
                )
    axes.set(xscale="log", yscale="log", xlabel="measured seconds a step", ylabel="predicted")
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--measure", action="store_true", help="measure the codecs anew")
    parser.add_argument("--repeats", type=int, default=25)
    options = parser.parse_args()
    cells = recorded_cells()
    path = report.RESULTS / "planner.json"
    if options.measure:
        measured = measure_machine(cells, options.repeats)
    elif path.is_file():
        measured = json.loads(path.read_text())["measured"]
    else:
        parser.error(f"there is no {path}: give --measure")
    predictor = Predictor(measured)
    fitted = fit([cell for cell in cells if cell.file in FITTED], predictor)

    rows = []
    for cell in cells:
        predicted = predictor(cell, OURS)
        error = abs(predicted.seconds / cell.measured - 1)
        ratio = f"{predicted.sent_bytes / cell.sent_bytes:.3f}" if cell.sent_bytes else "-"
        rows.append(
            {
                **dataclasses.asdict(cell),
                "group": cell.group,
                "predicted": predicted.seconds,
                "predicted_bytes": predicted.sent_bytes,
                "error": error,
            }
        )
        print(
            f"{cell.file:24}{cell.workers:3}{cell.bits_per_second / 1e6:8.0f} Mbit/s "
            f"{cell.mode:21}{cell.measured:9.4f} s{predicted.seconds:9.4f} s"
            f"{predicted.seconds / cell.measured - 1:+7.1%}  {ratio} of the bytes"
        )
    errors = {
        group: summary([row["error"] for row in rows if row["group"] in (group, *parts)])
        for group, parts in {**dict.fromkeys(COLORS, ()), "all": tuple(COLORS)}.items()
    }
    for name, one, ours in zip(("launch", "latency", "byte"), fitted, OURS, strict=True):
        print(f"{name}: {ours:.3g} s; fitted anew: {one:.3g} s")
    for name, one in errors.items():
        print(
            f"{name}: {one['cells']} cells, median error {one['median']:.1%}, within 20%: "
            f"{one['within_20_percent']:.0%}, largest {one['largest']:.0%}"
        )
    path = report.write(
        "planner",
        {
            "constants": OURS,
            "fitted_anew": fitted,
            "errors": errors,
            "cells": rows,
            "measured": measured,
        },
    )
    draw(rows, path.with_suffix(".png"))
    print(f"written: {path} and {path.with_suffix('.png').name}")


if __name__ == "__main__":
    main()
