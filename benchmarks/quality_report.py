"""The results of benchmarks/quality.py: lines of JSON, and a table."""

import json
import math
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from quality_cells import CELLS, DOWNLOADED, LATER
from quality_tasks import TASKS, Metric

Run = dict[str, Any]
BASELINE = "none"
STEPS_BAR = 1.05  # times the baseline's steps to 95% of its final quality


def lines(path: Path) -> Iterator[Run]:
    """Yields what `append` wrote to a file, nothing if there is no file."""
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())


def append(path: Path, run: Run) -> None:
    """Adds a line; several processes may do so at once."""
    with path.open("a") as file:
        file.write(json.dumps(run) + "\n")


def find(path: Path, key: Run) -> Run | None:
    """Returns the run that has all of the key's values."""
    return next((run for run in lines(path) if key.items() <= run.items()), None)


def steps_to(goal: float, curve: list[float], every: int) -> float | None:
    """Returns when the curve first falls to `goal`, between evaluations by interpolation."""
    for i, value in enumerate(curve[:-1]):  # the last one is the end, once more
        if value <= goal:
            if i == 0:
                return 0.0
            return (i - 1 + (goal - curve[i - 1]) / (value - curve[i - 1])) * every
    return None


def summarize(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Returns a row for each cell and variant, compared with the baseline's seeds."""
    by_cell: dict[str, dict[str, dict[int, Run]]] = {}
    for run in runs:
        by_cell.setdefault(run["cell"], {}).setdefault(run["variant"], {})[run["seed"]] = run
    rows = []
    for cell in CELLS + LATER + DOWNLOADED:
        variants = by_cell.get(cell.name, {})
        base = variants.get(BASELINE, {})
        for variant, by_seed in variants.items():
            # The same seed means the same initial weights and the same batches.
            seeds = sorted(by_seed.keys() & base.keys())
            pairs = [(by_seed[seed], base[seed]) for seed in seeds]
            pairs = [(run, other) for run, other in pairs if run.get("text") == other.get("text")]
            if pairs:
                compared = _compare(pairs, TASKS[cell.task].metric)
                about = {"cell": cell.name, "set_aside": cell.set_aside, "variant": variant}
                rows.append({**about, "seeds": len(pairs), **compared})
    return rows


def _compare(pairs: list[tuple[Run, Run]], metric: Metric) -> dict[str, Any]:
    """Returns mean and spread of the final quality, and both against the baseline.

    The difference may be the bar, or two standard errors of the difference between runs of the same
    seed, if those are more.
    """
    final, base_final = ([pair[i]["curve"][-1] for pair in pairs] for i in (0, 1))
    base = statistics.mean(base_final)
    mean = statistics.mean(final)
    worse = metric.worse(mean, base)
    unit = base if metric.relative else 1.0
    spread = base_spread = error = 0.0
    if len(pairs) > 1:
        spread, base_spread = statistics.stdev(final), statistics.stdev(base_final)
        differences = [mine - other for mine, other in zip(final, base_final, strict=True)]
        error = statistics.stdev(differences) / len(pairs) ** 0.5 / unit
    ratio = _steps_ratio(pairs, metric, "curve")
    entropies = [run["entropy"] for run, _ in pairs if "entropy" in run]
    return {
        "mean": mean,
        "spread": spread,
        "base_spread": base_spread,
        "worse": worse,
        "error": error,
        "steps_ratio": ratio,
        "unaveraged": _steps_ratio(pairs, metric, "unaveraged"),
        "entropy": statistics.mean(entropies) if entropies else None,
        "within": worse <= max(metric.bar, 2 * error),
        "fast": ratio <= STEPS_BAR,
        "bars": worse / metric.bar,
    }


def _steps_ratio(pairs: list[tuple[Run, Run]], metric: Metric, curve: str) -> float | None:
    """Returns steps to 95% of the baseline's final quality, divided by the baseline's steps.

    Args:
      pairs: runs, and runs of the baseline with the same seeds.
      metric: of the cell.
      curve: which of the curves; None is returned if the runs have no such curve, and infinity if
        a run never reaches it.
    """
    if curve not in pairs[0][0]:
        return None
    mine, base = (
        [
            statistics.mean(values)
            for values in zip(*(pair[i][curve] for pair in pairs), strict=True)
        ]
        for i in (0, 1)
    )
    goal, every = metric.nearly(max(base[-1], base[-2])), pairs[0][0]["every"]
    steps, base_steps = (steps_to(goal, means, every) for means in (mine, base))
    return steps / base_steps if steps is not None and base_steps else math.inf


def _times(ratio: float) -> str:
    """Returns a ratio of `_steps_ratio` as text."""
    return f"{ratio:.2f} ×" if math.isfinite(ratio) else "never"


def write_table(rows: list[dict[str, Any]], variants: list[str], path: Path) -> None:
    """Writes the rows of these variants as a table in Markdown.

    Cells are left out of which there is nothing but the baseline.
    """
    rows = [row for row in rows if row["variant"] in variants]
    compared = {row["cell"] for row in rows if row["variant"] != BASELINE}
    rows = [row for row in rows if row["cell"] in compared]
    text = [
        "| cell | seeds | variant | mean ± spread | worse by | bar, or twice the standard error | "
        "steps to 95% |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        metric = metric_of(row["cell"])
        name = row["cell"] + (" *" if row["set_aside"] else "")
        value = f"{row['mean']:.4g} ± {row['spread']:.2g}"
        if row["variant"] == BASELINE:
            text.append(f"| **{name}** ({metric.name}) | {row['seeds']} | none | {value} | | | |")
            continue
        unit = "%" if metric.relative else " points"
        allowed = max(metric.bar, 2 * row["error"])
        steps = _times(row["steps_ratio"])
        steps = steps if row["fast"] else f"**{steps}**"
        if row["unaveraged"] is not None:
            steps += f" (weights before averaging {_times(row['unaveraged'])})"
        worse = f"{100 * row['worse']:+.2f}{unit}"
        text.append(
            f"| | {row['seeds']} | {row['variant']} | {value} | "
            f"{worse if row['within'] else f'**{worse}**'} | {100 * allowed:.2f}{unit} | {steps} |"
        )
    path.write_text("\n".join(text) + "\n")


def metric_of(cell: str) -> Metric:
    """Returns the metric of the cell with a name."""
    cells = CELLS + LATER + DOWNLOADED
    return next(TASKS[each.task].metric for each in cells if each.name == cell)


def show(rows: list[dict[str, Any]]) -> None:
    """Prints the table, and a line for each variant: how many cells are within the bars."""
    cell = ""
    for row in rows:
        metric = metric_of(row["cell"])
        if cell != (cell := row["cell"]):
            aside = ", set aside" if row["set_aside"] else ""
            print(f"\n{cell} ({metric.name}, {row['seeds']} seeds{aside})")
        bits = "" if row["entropy"] is None else f"  {row['entropy']:.2f} bits"
        missed = "" if row["within"] else "  WORSE"
        missed += "" if row["fast"] else "  SLOW"
        print(
            f"  {row['mean']:.5g} ± {row['spread']:.2g}  {100 * row['worse']:+.2f}"
            f" ± {100 * row['error']:.2f}  ({row['bars']:+.2f} of the bar)"
            f"  {_times(row['steps_ratio'])}{bits}{missed}"
            f"  {row['variant']}"
        )
    print()
    for variant in dict.fromkeys(row["variant"] for row in rows):
        mine = [row for row in rows if row["variant"] == variant]
        entropies = [row["entropy"] for row in mine if row["entropy"] is not None]
        bits = f", {statistics.mean(entropies):.2f} bits" if entropies else ""
        print(
            f"{sum(row['within'] for row in mine)} of {len(mine)} cells end within the bars, "
            f"{sum(row['fast'] for row in mine)} are as fast; worse by "
            f"{statistics.mean(row['bars'] for row in mine):+.2f} bars on average{bits}: {variant}"
        )
