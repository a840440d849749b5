"""Predictions of `python -m tf_gc.planner` against the step times that network.py recorded.

Predicts every cell of results/network_*.json: models, rates, numbers of workers, ways to send. The
planner's two constants of TensorFlow's transport, time for each byte and for each message, are fitted
on the largest and the smallest model with 2 workers; all other files are set aside, and reported
apart. Computing takes what
the recorded mode `alone` took. Encoding and decoding are measured on this machine with --measure,
with one thread, as in network.py; without it, those of the last time are read again. Prints the
constants and the errors; writes results/planner.json and .png.

    python benchmarks/planner.py --measure
    python benchmarks/planner.py
"""

import argparse
import dataclasses
import itertools
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
from tf_gc.planner.time_model import LATENCY, TRANSPORT, Compute, Link

matplotlib.use("Agg")
from matplotlib import pyplot as plt

FITTED = ("network_mlp", "network_resnet")
# In these files, sums of a scatter-gather were in one layer, which was the default then.
ONE_LAYER = ("network_mlp_plans_auto", "network_mlp_4_workers")
THREADS = 1


@dataclasses.dataclass(frozen=True)
class Cell:
    """A recorded step time.

    Attributes:
      file: the name of the recorded result.
      model: a key of models.MODELS.
      mode: as in network.py.
      workers: how many there were.
      bits_per_second: the rate of their links.
      alone: the step of a worker that sends nothing, beside as many others.
      contention: how many threads of workers share a core.
      measured: the step's median seconds.
      sent_bytes: what `strategy.traffic` said.
    """

    file: str
    model: str
    mode: str
    workers: int
    bits_per_second: float
    alone: float
    contention: float
    measured: float
    sent_bytes: int

    @property
    def base(self) -> str:
        """The mode without a plan."""
        return self.mode.partition(":")[0]

    def choice(self) -> Choice:
        if self.mode == "stock":
            return STOCK
        layers = {"sum_layers": 1} if self.file in ONE_LAYER else {}
        return Choice(self.mode, from_params({**network.compression_params(self.mode), **layers}))


def recorded_cells() -> list[Cell]:
    """Returns all recorded cells in which something was sent over a shaped link."""
    results = {path.stem: json.loads(path.read_text()) for path in report.RESULTS.glob("network_*.json")}
    # What the model takes alone beside one other worker, for files that do not say.
    alone_of = {
        result["options"]["model"]: statistics.median(
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
                if speed is None or options["threads"] != THREADS:
                    continue
                alone = alone_of[options["model"]] * contention
                if "alone" in modes:
                    alone = modes["alone"]["seconds"]
                cells += [
                    Cell(
                        *(name, options["model"], mode, int(workers), speed, alone, contention),
                        measured=modes[mode]["seconds"],
                        sent_bytes=modes[mode]["predicted_bytes"],
                    )
                    for mode in modes
                    if mode not in ("alone", "none")
                ]
    return cells


def measure_machine(cells: Sequence[Cell], repeats: int) -> dict[str, Any]:
    """Measures each model and each codec of the cells with one thread."""
    import models

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    measured = {}
    for model in dict.fromkeys(cell.model for cell in cells):
        build = models.MODELS[model]
        subject = make_subject(lambda build=build: build(32).model, 32)
        compute = measure.measure_compute(subject, repeats)
        values = measure.compute_gradients(subject)
        gradients = measure.describe(subject, values)
        chosen = {cell.base: Choice(cell.base, from_params(network.MODES[cell.base]))
                  for cell in cells if cell.model == model and cell.mode != "stock"}
        costs = {
            name: measure.measure_codec(choice, gradients, values, repeats)
            for name, choice in chosen.items()
        }
        measured[model] = {
            "compute": dataclasses.asdict(compute),
            "gradients": {
                "dense": [g and [g.variable, g.dtype.name, g.elements] for g in gradients.gradients],
                "sparse_bytes": gradients.sparse_bytes,
                "state_bytes": gradients.state_bytes,
            },
            "costs": {name: dataclasses.asdict(cost) for name, cost in costs.items()},
        }
        print(f"{model}: a step takes {1e3 * compute.total:.1f} ms alone", flush=True)
    return measured


class Predictor:
    """Predicts cells from what was measured on this machine."""

    def __init__(self, measured: Mapping[str, Any]) -> None:
        self._compute = {name: Compute(**one["compute"]) for name, one in measured.items()}
        self._gradients = {
            name: Gradients(
                tuple(g and Gradient(g[0], tf.as_dtype(g[1]), g[2]) for g in one["dense"]),
                tuple(one["sparse_bytes"]),
                one["state_bytes"],
            )
            for name, two in measured.items()
            for one in [two["gradients"]]
        }
        self._costs = {
            name: {mode: CodecCost(**cost) for mode, cost in one["costs"].items()}
            for name, one in measured.items()
        }

    def __call__(self, cell: Cell, latency: float, transport: float) -> Any:
        """Returns the prediction of a cell.

        Beside others, a worker takes longer than when this machine was measured, for computing and
        for codecs alike: `alone` says by how much. The transport has to share the cores as well.
        """
        compute = self._compute[cell.model]
        slower = cell.alone / compute.total
        compute, costs = compute.scaled(slower), {}
        if cell.mode != "stock":
            costs[cell.mode] = self._costs[cell.model][cell.base].scaled(slower)
        link = Link(
            *(cell.workers, cell.bits_per_second),
            latency=latency * cell.contention,
            transport=transport / cell.contention,
        )
        return predict(cell.choice(), self._gradients[cell.model], compute, costs, link)


def fit(cells: Sequence[Cell], predictor: Predictor) -> tuple[float, float]:
    """Returns seconds for each message and bytes a second with the least squared log error."""
    latencies = np.geomspace(1e-4, 1e-2, 41)
    transports = np.geomspace(1e8, 3e9, 61)

    def error(constants: tuple[float, float]) -> float:
        return sum(
            np.log(predictor(cell, *constants).seconds / cell.measured) ** 2 for cell in cells
        )

    return min(itertools.product(latencies.tolist(), transports.tolist()), key=error)


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
    groups = {"stock": "stock", "compressed": "compressed"}
    for fitted, color in ((False, "#0b62a4"), (True, "#d9560b")):
        for kind, marker in (("stock", "s"), ("compressed", "o")):
            points = [
                (row["measured"], row["predicted"])
                for row in rows
                if row["fitted"] == fitted and (row["mode"] == "stock") == (kind == "stock")
            ]
            axes.plot(
                *zip(*points, strict=True),
                marker,
                color=color,
                markersize=5,
                markerfacecolor="none" if kind == "stock" else color,
                linestyle="",
                label=f"{groups[kind]}, {'fitted' if fitted else 'set aside'}",
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
        predicted = predictor(cell, *fitted)
        with_constants = predictor(cell, LATENCY, TRANSPORT)
        error = abs(predicted.seconds / cell.measured - 1)
        rows.append(
            {
                **dataclasses.asdict(cell),
                "fitted": cell.file in FITTED,
                "predicted": predicted.seconds,
                "predicted_bytes": predicted.sent_bytes,
                "error": error,
                "predicted_with_the_planners_constants": with_constants.seconds,
            }
        )
        print(
            f"{cell.file:24}{cell.workers:3}{cell.bits_per_second / 1e6:8.0f} Mbit/s "
            f"{cell.mode:21}{cell.measured:9.4f} s{predicted.seconds:9.4f} s"
            f"{predicted.seconds / cell.measured - 1:+7.1%}"
            f"{predicted.sent_bytes / cell.sent_bytes:8.3f}"
        )
    errors = {
        "fitted": summary([row["error"] for row in rows if row["fitted"]]),
        "set aside": summary([row["error"] for row in rows if not row["fitted"]]),
        "all": summary([row["error"] for row in rows]),
    }
    print(f"fitted: {1e3 * fitted[0]:.2f} ms a message, {fitted[1] / 1e6:.0f} MB a second")
    print(f"the planner's: {1e3 * LATENCY:.2f} ms a message, {TRANSPORT / 1e6:.0f} MB a second")
    for name, one in errors.items():
        print(
            f"{name}: {one['cells']} cells, median error {one['median']:.1%}, within 20%: "
            f"{one['within_20_percent']:.0%}, largest {one['largest']:.0%}"
        )
    path = report.write(
        "planner",
        {
            "latency": fitted[0],
            "transport": fitted[1],
            "errors": errors,
            "cells": rows,
            "measured": measured,
        },
    )
    draw(rows, path.with_suffix(".png"))
    print(f"written: {path} and {path.with_suffix('.png').name}")


if __name__ == "__main__":
    main()
