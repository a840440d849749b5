"""Does `tf_gc.Auto` choose well? Its steps against stock and against each fixed choice.

Five models, each over links of five rates between two workers (network.py, so Linux as root), and
with two replicas on one host. Nothing about Auto was tuned on any of these cells. Each part is
written to a file of its own, and `--report` makes table and picture of all files that there are:
results/auto.md and .png.

    sudo python benchmarks/auto.py
    sudo python benchmarks/auto.py --models mlp --parts host fast
    python benchmarks/auto.py --report
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import local_jobs
import matplotlib
import network_links
import report

matplotlib.use("Agg")
from matplotlib import pyplot as plt

MODELS = ["mlp", "vgg", "lstm", "resnet", "small"]
# Slow links take fewer steps: those of the stock strategy take up to nine seconds there.
PARTS = {"slow": (["50mbit", "100mbit"], 4), "fast": (["1gbit", "10gbit", "none"], 12)}
# Those of the small model take three milliseconds, so that it takes more of them.
MORE = {"small": 8}
HOST = "host"
FIXED = ["default:packed", "default:compact", "default:columns"]
ON_HOST = {
    "default:all_gather": {"type": "quantized", "plan": "all_gather"},
    "default:scatter_gather": {"type": "quantized", "plan": "scatter_gather"},
    "Auto": {"type": "auto", "params": {"type": "quantized", "warm_up": False}},
}
BATCH, ROUNDS, STEPS = 32, 3, 12
# What Auto is to reach, as times of stock and of the best fixed choice.
OF_STOCK, OF_BEST = 0.97, 0.95


def measure_host(task: dict[str, Any]) -> dict[str, Any]:
    """Returns the median seconds of a step of each mode, with two replicas in this process."""
    import network_worker
    import tensorflow as tf

    import tf_gc

    cpus = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], cpus)
    devices = ["CPU:0", "CPU:1"]
    strategies: dict[str, Any] = {"stock": tf.distribute.MirroredStrategy(devices)}
    for mode, params in ON_HOST.items():
        strategies[mode] = tf_gc.CompressedMirroredStrategy(devices, params)
    runs, trial = {}, {}
    for mode, strategy in strategies.items():
        step, _ = network_worker.build(strategy, task["model"], BATCH)
        report.finish_warm_up(strategy, step)
        if mode == "Auto":
            trial = network_worker.choose(strategy, step)
        runs[mode] = report.timed(step, STEPS * MORE.get(task["model"], 1))
    rounds = {mode: report.medians(s) for mode, s in report.alternate(runs, ROUNDS).items()}
    modes: dict[str, Any] = {
        mode: {
            "seconds": statistics.median(seconds),
            "of_stock": statistics.median(
                mine / its for mine, its in zip(seconds, rounds["stock"], strict=True)
            ),
        }
        for mode, seconds in rounds.items()
    }
    modes["Auto"]["trial"] = trial
    return {"modes": modes}


def measure(model: str, part: str) -> None:
    """Measures a model over some links, or on one host, and writes auto_MODEL_PART.json."""
    name = f"auto_{model}_{part}"
    if part == HOST:
        (result,) = local_jobs.run(__file__, {"model": model}, workers=1, limit=600)
        report.write(name, {"workers": {"1": {"rates": {HOST: result}}}})
        return
    rates, steps = PARTS[part]
    command = [sys.executable, str(Path(__file__).with_name("network.py")), "--model", model]
    command += ["--modes", "stock", *FIXED, "Auto", "--rates", *rates]
    command += ["--steps", str(steps * MORE.get(model, 1)), "--rounds", str(ROUNDS)]
    subprocess.run([*command, "--name", name, "--no-picture"], check=True)


def rows() -> list[dict[str, Any]]:
    """Returns what was measured, a row for each cell."""
    found = []
    for model in MODELS:
        for part in (*PARTS, HOST):
            path = report.RESULTS / f"auto_{model}_{part}.json"
            if not path.exists():
                continue
            ((_, job),) = json.loads(path.read_text())["workers"].items()
            for rate, cell in job["rates"].items():
                modes = cell["modes"]
                fixed = {mode: it for mode, it in modes.items() if mode != "Auto"}
                best = min(fixed, key=lambda mode: fixed[mode]["seconds"])
                found.append(
                    {
                        "model": model,
                        "rate": rate,
                        "chosen": modes["Auto"]["trial"]["chosen"],
                        "stock": modes["stock"]["seconds"],
                        "auto": modes["Auto"]["seconds"],
                        "of_stock": 1 / modes["Auto"]["of_stock"],
                        "best": best,
                        "of_best": modes[best]["of_stock"] / modes["Auto"]["of_stock"],
                    }
                )
    return found


def words(rate: str) -> str:
    if rate == HOST:
        return "one host"
    if rate == network_links.UNSHAPED:
        return "not shaped"
    return rate.replace("mbit", " Mbit/s").replace("gbit", " Gbit/s")


def write_table(cells: list[dict[str, Any]]) -> Path:
    """Writes results/auto.md."""
    lines = [
        "# `Auto` against stock and against the best fixed choice",
        "",
        f"Two workers, or two replicas on one host ({report.machine()['cpu']}, "
        f"{report.machine()['cores']} cores). Times are medians; a speed above 1 means that Auto's "
        f"steps are faster. Bars: at least {OF_STOCK} times as fast as stock, and {OF_BEST} times "
        "as fast as the best of stock and the fixed choices; what misses them is in bold.",
        "",
        "| model | link | Auto chooses | stock, ms | Auto, ms | speed of stock | best | of best |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:

        def marked(key: str, bar: float, cell: dict[str, Any] = cell) -> str:
            text = f"{cell[key]:.2f}"
            return text if cell[key] >= bar else f"**{text}**"

        lines.append(
            f"| {cell['model']} | {words(cell['rate'])} | {cell['chosen']} | "
            f"{1e3 * cell['stock']:.3g} | {1e3 * cell['auto']:.3g} | "
            f"{marked('of_stock', OF_STOCK)} | {cell['best']} | {marked('of_best', OF_BEST)} |"
        )
    missed = [sum(c[key] < bar for c in cells) for key, bar in _BARS]
    lines += [
        "",
        f"{len(cells)} cells; {missed[0]} miss the bar against stock, {missed[1]} that against the "
        "best fixed choice.",
    ]
    path = report.RESULTS / "auto.md"
    path.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return path


_BARS = (("of_stock", OF_STOCK), ("of_best", OF_BEST))


def draw(cells: list[dict[str, Any]], path: Path) -> None:
    """Draws the speeds of all cells."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 6), layout="constrained", sharey=True)
    titles = ("times as fast as stock", "times as fast as the best fixed choice")
    places = range(len(cells))
    for axes, (key, bar), title in zip(panels, _BARS, titles, strict=True):
        values = [cell[key] for cell in cells]
        colors = ["tab:blue" if value >= bar else "tab:red" for value in values]
        axes.barh(places, values, color=colors)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.axvline(bar, color="black", linewidth=0.8, linestyle="dotted")
        axes.set_title(f"Auto: {title}")
        if max(values) > 3:
            axes.set_xscale("log")
            axes.set_xlim(0.5, 30)
            ticks = [0.5, 1, 2, 5, 10, 20]
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
        for place, value in zip(places, values, strict=True):
            axes.text(value, place, f" {value:.2f}", va="center", fontsize=7)
    panels[0].set_yticks(places, [f"{c['model']}, {words(c['rate'])}" for c in cells], fontsize=8)
    panels[0].invert_yaxis()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--parts", nargs="+", choices=[*PARTS, HOST], default=[*PARTS, HOST])
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        print(json.dumps(measure_host(json.loads(options.job))))
        return
    for model in () if options.report else options.models:
        for part in options.parts:
            measure(model, part)
    cells = rows()
    if not cells:
        sys.exit("error: nothing was measured so far")
    path = write_table(cells)
    draw(cells, path.with_suffix(".png"))
    logs = [math.log(cell["of_stock"]) for cell in cells]
    print(f"written: {path}; geometric mean {math.exp(statistics.mean(logs)):.2f} times stock")


if __name__ == "__main__":
    main()
