"""The pictures of benchmarks/quality.py: all cells on one page, and what precision costs."""

import collections
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib import ticker
from quality_cells import CELLS, DOWNLOADED, Cell
from quality_report import BASELINE, Run
from quality_tasks import TASKS

INK, GREY, BLUE, ORANGE = "#222222", "#8a8a8a", "#0b62a4", "#d9560b"
COLUMNS = 3  # the cells of a model; the last one is set aside
LINES = {"all-gather": (ORANGE, "-"), "scatter-gather": (BLUE, (0, (4, 2)))}
SKIPPED = 0.1  # of a curve: the first values are far away from the others


def draw_cells(cells: Sequence[Cell], runs: Iterable[Run], path: Path) -> None:
    """Draws quality over steps, a panel for each cell: means, and bands from least to most.

    Seeds that a variant lacks are left out, so that all curves of a panel are of the same seeds.
    """
    by_seed: dict[str, dict[str, dict[int, Sequence[float]]]] = collections.defaultdict(
        lambda: collections.defaultdict(dict)
    )
    every = {}
    for run in runs:
        if run["variant"] == BASELINE or run["variant"] in LINES:
            by_seed[run["cell"]][run["variant"]][run["seed"]] = run["curve"]
        every[run["cell"]] = run["every"]
    curves = {}
    for cell, variants in by_seed.items():
        seeds = set.intersection(*(set(found) for found in variants.values()))
        curves[cell] = {name: [found[seed] for seed in seeds] for name, found in variants.items()}
    columns = min(COLUMNS, len(cells))
    rows = len(cells) // columns
    size = (4 * columns, max(2.5 * rows, 3.5))
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained")
    for cell, panel in zip(cells, axes.flat, strict=True):
        _panel(panel, cell, curves.get(cell.name, {}), every.get(cell.name, 1))
    handles = [plt.Line2D([], [], color=INK, linewidth=3, label="uncompressed")]
    handles += [
        plt.Line2D([], [], color=color, linestyle=style, label=name)
        for name, (color, style) in LINES.items()
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    figure.supxlabel("steps; bands reach from the best to the worst seed; less is better")
    figure.savefig(path, dpi=90)
    plt.close(figure)


def _panel(axes: Any, cell: Cell, variants: dict[str, list[Sequence[float]]], every: int) -> None:
    aside = ", set aside" if cell.set_aside else ""
    axes.set_title(f"{cell.name} ({cell.replicas} replicas{aside})", fontsize=9)
    axes.set_ylabel(TASKS[cell.task].metric.name, fontsize=8)
    for name, (color, style) in ({BASELINE: (INK, "-")} | LINES).items():
        if name not in variants:
            continue
        values = np.array(variants[name])
        first = max(1, int(SKIPPED * values.shape[1]))
        steps = every * np.arange(first, values.shape[1])
        values = values[:, first:]
        width = 3.0 if name == BASELINE else 1.4
        axes.plot(steps, values.mean(axis=0), color=color, linestyle=style, linewidth=width)
        low, high = values.min(axis=0), values.max(axis=0)
        axes.fill_between(steps, low, high, color=color, alpha=0.15, linewidth=0)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", color="#e6e6e6")
    axes.spines[["top", "right"]].set_visible(False)


def draw_precision(rows: list[dict[str, Any]], bits: dict[str, float], path: Path) -> None:
    """Draws how much worse training ends by the bits of an element, a line for each cell.

    Cells of one model have one color.

    Args:
      rows: of `quality_report.summarize`; cells without all of the variants are left out.
      bits: of an element, by variant.
      path: of the picture.
    """
    by_cell: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for row in rows:
        by_cell[row["cell"]][row["variant"]] = row["bars"]
    complete = {cell: found for cell, found in by_cell.items() if bits.keys() <= found.keys()}
    task_of = {cell.name: cell.task for cell in CELLS + DOWNLOADED}
    tasks = list(dict.fromkeys(task_of[cell] for cell in complete))
    figure, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
    for cell, found in complete.items():
        number = tasks.index(task_of[cell])
        first = task_of[cell] not in axes.get_legend_handles_labels()[1]
        axes.plot(
            list(bits.values()), [found[variant] for variant in bits], "o-", color=f"C{number}",
            linewidth=1, markersize=4, label=task_of[cell] if first else None,
        )  # fmt: skip
    if complete:
        medians = [statistics.median(found[v] for found in complete.values()) for v in bits]
        axes.plot(list(bits.values()), medians, color=INK, linewidth=3, label="median of all")
    axes.axhline(1, color=GREY, linestyle=":")
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_yscale("symlog", linthresh=2)
    axes.yaxis.set_major_locator(ticker.FixedLocator([-5, -2, -1, 0, 1, 2, 5, 10, 20, 50]))
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xticks(list(bits.values()))
    axes.set_xlabel("bits an element, with scales")
    axes.set_ylabel("worse than uncompressed training,\nin units of the bar (dotted)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)
