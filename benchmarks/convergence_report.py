"""The results of benchmarks/convergence.py: a table, JSON and pictures."""

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import report
from convergence_tasks import TASKS, Metric

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib import ticker

Run = dict[str, Any]
BASELINE = "none"
STYLES = ("-", "-", "--", "-.", ":")
LEARNS = 0.8  # of what uncompressed training gains: less is left out of the axes
STEPS_BAR = 1.1  # times the baseline's steps to 95% of its final quality


def load(path: Path) -> list[Run]:
    """Returns the runs in a file that `save` wrote, none if there is no file."""
    return json.loads(path.read_text())["runs"] if path.exists() else []


def save(path: Path, head: dict[str, Any], runs: list[Run]) -> None:
    """Writes `head` and the runs, a line each; the old file stays until the new one is whole."""
    report.write(path.stem + ".new", {**head, "runs": []}, path.parent)
    written = path.parent / f"{path.stem}.new.json"
    lines = ",\n  ".join(json.dumps(run) for run in runs)
    written.write_text(written.read_text().replace('"runs": []', f'"runs": [\n  {lines}\n ]'))
    written.replace(path)


def steps_to(goal: float, curve: Sequence[float], every: int, metric: Metric) -> float | None:
    """Returns when the curve first reaches `goal`, between evaluations by interpolation."""
    for i, value in enumerate(curve):
        if metric.reaches(value, goal):
            if i == 0:
                return 0.0
            fraction = (goal - curve[i - 1]) / (value - curve[i - 1])
            return (i - 1 + fraction) * every
    return None


def summarize(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Returns a row for each task, optimizer and variant, compared with the baseline's seeds."""
    cells: dict[tuple[str, str], dict[str, dict[int, Run]]] = {}
    for run in runs:
        cell = cells.setdefault((run["task"], run["optimizer"]), {})
        cell.setdefault(run["variant"], {})[run["seed"]] = run
    rows = []
    for (task, optimizer), variants in cells.items():
        metric = TASKS[task].metric
        for variant, by_seed in variants.items():
            # The same seed means the same initial weights and the same batches.
            base = variants.get(BASELINE, {})
            seeds = sorted(by_seed.keys() & base.keys())
            if seeds:
                pairs = [(by_seed[seed], base[seed]) for seed in seeds]
                rows.append(
                    {
                        "task": task,
                        "optimizer": optimizer,
                        "variant": variant,
                        "seeds": len(seeds),
                        **_compare(pairs, metric),
                    }
                )
    return rows


def _compare(pairs: list[tuple[Run, Run]], metric: Metric) -> dict[str, Any]:
    """Returns mean and standard deviation of the final quality, and both against the baseline.

    The steps are means over the seeds. Where a seed stays short of 95%, which some do without
    compression as well, they are those of the mean curve; `never` and `never_baseline` count them.
    """
    every = pairs[0][0]["every"]
    curves, base_curves = ([pair[i]["curve"] for pair in pairs] for i in (0, 1))
    final = [curve[-1] for curve in curves]
    base = statistics.mean(curve[-1] for curve in base_curves)
    goal = metric.nearly(base)
    by_seed, base_by_seed = (
        [steps_to(goal, curve, every, metric) for curve in some] for some in (curves, base_curves)
    )
    never, never_baseline = by_seed.count(None), base_by_seed.count(None)
    if never or never_baseline:
        steps, base_steps = (
            steps_to(goal, np.mean(some, axis=0).tolist(), every, metric)
            for some in (curves, base_curves)
        )
    else:
        steps, base_steps = (
            statistics.mean(step for step in some if step is not None)
            for some in (by_seed, base_by_seed)
        )
    ratio = None if steps is None or base_steps is None else steps / base_steps
    worse = metric.loss_of_quality(statistics.mean(final), base)
    return {
        "mean": statistics.mean(final),
        "std": statistics.stdev(final) if len(final) > 1 else None,
        "worse_by": worse,
        "steps_ratio": ratio,
        "never": never,
        "never_baseline": never_baseline,
        "within_bars": worse <= metric.bar and ratio is not None and ratio <= STEPS_BAR,
    }


def show(rows: list[dict[str, Any]]) -> None:
    """Prints the table. A variant that misses a bar says so."""
    cell = ""
    for row in rows:
        metric = TASKS[row["task"]].metric
        if cell != (cell := f"{row['task']}, {row['optimizer']}"):
            print(f"\n{cell} ({row['seeds']} seeds)")
            print(f"  {'':20}{metric.name:>20}{'worse by':>12}{'steps to 95%':>14}")
        digits = 2 if metric.is_ratio else 4
        spread = "" if row["std"] is None else f" ± {row['std']:.{digits}f}"
        worse = f"{100 * row['worse_by']:+.2f}{' %' if metric.is_ratio else ''}"
        steps = "never" if row["steps_ratio"] is None else f"{row['steps_ratio']:.2f} x"
        print(
            f"  {row['variant']:20}{row['mean']:>{20 - len(spread)}.{digits}f}{spread}"
            f"{worse:>12}{steps:>14}{'' if row['within_bars'] else '   misses a bar'}"
        )


def draw(runs: list[Run], directory: Path) -> list[Path]:
    """Draws a picture for each task, a panel for each optimizer; returns their paths.

    The axes are those of the variants that learn, so that their curves can be told apart. Each
    panel names the variants that its axes leave out.
    """
    paths = []
    for task in dict.fromkeys(run["task"] for run in runs):
        metric = TASKS[task].metric
        mine = [run for run in runs if run["task"] == task]
        optimizers = list(dict.fromkeys(run["optimizer"] for run in mine))
        figure, every_axes = plt.subplots(
            1,
            len(optimizers),
            figsize=(max(5.2 * len(optimizers), 7), 4.4),
            layout="constrained",
            squeeze=False,
            sharey=True,
        )
        handles: dict[str, Any] = {}
        for axes, optimizer in zip(every_axes[0], optimizers, strict=True):
            handles |= _panel(axes, [run for run in mine if run["optimizer"] == optimizer], metric)
            axes.set_title(f"{task}, {optimizer}")
            axes.set_xlabel("steps")
        first = every_axes[0][0]
        first.set_yscale("log")
        first.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 3, 5, 7)))
        first.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        first.yaxis.set_minor_locator(ticker.NullLocator())
        first.set_ylabel(metric.name if metric.is_ratio else f"1 − {metric.name}")
        figure.legend(
            handles.values(),
            [f"{name} (no compression)" if name == BASELINE else name for name in handles],
            loc="outside lower center",
            ncols=len(handles),
            frameon=False,
        )
        paths.append(directory / f"convergence_{task.replace(' ', '_').lower()}.png")
        figure.savefig(paths[-1], dpi=120)
        plt.close(figure)
    return paths


def learns(metric: Metric, final: float, base: float, untrained: float) -> bool:
    """Returns whether training gains at least 80% of what uncompressed training gains."""
    values = np.array([untrained, final, base])
    if not np.isfinite(values).all():
        return False
    untrained, final, base = np.log(values) if metric.is_ratio else values
    return bool((final - untrained) / (base - untrained) >= LEARNS)


def _panel(axes: Any, runs: list[Run], metric: Metric) -> dict[str, Any]:
    """Draws each variant's mean over seeds, and a band of a standard deviation to each side.

    Less is better in the picture: of what is best at 1, it shows how much is missing.

    Returns:
      The lines, by variant.
    """
    curves_of = {
        variant: np.array([run["curve"] for run in runs if run["variant"] == variant])
        for variant in dict.fromkeys(run["variant"] for run in runs)
    }
    base = curves_of.get(BASELINE, next(iter(curves_of.values()))).mean(axis=0)
    lines, shown, left_out = {}, [], []
    for number, (variant, curves) in enumerate(curves_of.items()):
        final = float(curves[:, -1].mean())
        if not learns(metric, final, float(base[-1]), float(base[0])):
            left_out.append(f"{variant} ({_end(metric, final, float(base[0]))})")
            continue
        every = next(run["every"] for run in runs if run["variant"] == variant)
        # Without the untrained model, which is far from all others.
        steps = every * np.arange(1, curves.shape[1])
        values = (curves if metric.is_ratio else 1 - curves)[:, 1:]
        mean, std = values.mean(axis=0), values.std(axis=0)
        width, style = (3.5, "-") if variant == BASELINE else (1.4, STYLES[number % len(STYLES)])
        color = "0.2" if variant == BASELINE else f"C{number - 1}"
        (lines[variant],) = axes.plot(steps, mean, color=color, linewidth=width, linestyle=style)
        axes.fill_between(
            steps, np.maximum(mean - std, 1e-9), mean + std, color=color, alpha=0.12, linewidth=0
        )
        shown.append(mean)
    low, high = min(map(np.min, shown)), max(map(np.max, shown))
    bottom, top = axes.get_ylim() if axes.get_yscale() == "log" else (low, high)
    axes.set_yscale("log")
    axes.set_ylim(min(bottom, 0.9 * low), max(top, 1.1 * high))  # the panels share them
    if left_out:
        axes.text(
            *(0.98, 0.97),
            "outside of these axes:\n" + "\n".join(left_out),
            transform=axes.transAxes,
            ha="right",
            va="top",
            fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "0.7", "alpha": 0.9},
        )
    return lines


def _end(metric: Metric, final: float, untrained: float) -> str:
    """Says how a variant ended that is left out."""
    if not np.isfinite(final) or (metric.is_ratio and final > untrained):
        return "diverged"
    return f"{metric.name} ends at {final:.{0 if metric.is_ratio else 2}f}"
