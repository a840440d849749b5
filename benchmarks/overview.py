"""The pictures at the top of README.md and docs/precision.md, drawn from recorded results.

Measures nothing. The first picture has the time of a step by the rate of the links, the stock
strategy with the best `bytes_per_pack` and a cast to bfloat16 against tf_gc's default with the wire
that it chooses. The second has perplexity over steps, without and with compression. Each picture
names its sources.
"""

import json
from collections.abc import Sequence
from typing import Any

import network_links
import numpy as np
import report
from matplotlib import pyplot as plt
from matplotlib import ticker

from tf_gc.reducers.wire import COMPACT_BELOW

INK, GREY, BLUE, ORANGE = "#222222", "#8a8a8a", "#0b62a4", "#d9560b"
STYLE = {
    "font.size": 11,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}

# The file of each model, by the title of its panel. All have two workers.
STEP_TIME = {
    "MLP": "links_mlp",
    "VGG-like": "links_vgg",
    "LSTM language model": "links_lstm",
    "ResNet-20": "links_resnet",
}

# Mode, label, color, style and width.
STEP_LINES = (
    ("stock", "stock strategy", INK, "o-", 1.8),
    ("bfloat16", "bfloat16", BLUE, "o-", 1.8),
    ("default", "tf_gc's default", ORANGE, "o-", 2.2),
    ("alone", "computing alone", GREY, "--", 1.2),
)
# The rows of ratios below the axes: mode, color and height.
BASELINES = (("stock", INK, -0.2), ("bfloat16", BLUE, -0.29))

# The cell of quality_cells.py, by the title of its panel.
TRAINING = {"GRU with Nadam": "GRU, Nadam", "LSTM with Nadam, set aside": "LSTM, Nadam"}
LINES = {
    "all-gather": ("tf_gc, all-gather", ORANGE, "-"),
    "scatter-gather": ("tf_gc, scatter-gather", BLUE, (0, (4, 2))),
}


def load(name: str) -> Any:
    return json.loads((report.RESULTS / f"{name}.json").read_text())


def default_mode(rate: str) -> str:
    """Returns the mode of network.py that `compression_params=None` is over links of a rate."""
    # Over a link of 1 Gbit/s the strategy measures 0.7. The compact wire was called "columns".
    below = network_links.bits_per_second(rate) <= COMPACT_BELOW
    return "default:columns" if below else "default:packed"


def draw_step_time() -> Any:
    """Draws a panel for each model: milliseconds of a step by the rate of the links."""
    figure, every_axes = plt.subplots(1, len(STEP_TIME), figsize=(12.5, 4.5), sharey=True)
    for axes, (title, name) in zip(every_axes, STEP_TIME.items(), strict=True):
        _step_time_panel(axes, title, load(name))
    first = every_axes[0]
    first.set_ylabel("milliseconds per step")
    first.set_yscale("log")
    first.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    first.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
    first.yaxis.set_minor_locator(ticker.NullLocator())
    first.set_ylim(22, 7500)
    for name, color, row in BASELINES:
        first.text(-0.1, row, f"against {name}", transform=first.transAxes, color=color, ha="right")
    every_axes[-1].legend(frameon=False)
    figure.suptitle(
        "Time of a training step, 2 workers: the slower the link and the more parameters, "
        "the more is gained",
        weight="bold",
    )
    sources = ", ".join(STEP_TIME.values())
    finish(
        figure,
        f"benchmarks/results: {sources}; medians, one thread a worker.\n"
        "Below the axes: how many times as fast as the stock strategy with its best "
        "bytes_per_pack, and as tf_gc sending bfloat16.",
    )
    return figure


def _step_time_panel(axes: Any, title: str, result: Any) -> None:
    rates = result["workers"]["2"]["rates"]
    places = [network_links.bits_per_second(rate) / 1e9 for rate in rates]
    modes = {
        "alone": dict.fromkeys(rates, "alone"),
        "stock": {rate: rates[rate]["best_stock"] for rate in rates},
        "bfloat16": dict.fromkeys(rates, "bfloat16"),
        "default": {rate: default_mode(rate) for rate in rates},
    }
    milliseconds = {
        name: [1e3 * rates[rate]["modes"][mode]["seconds"] for rate, mode in by_rate.items()]
        for name, by_rate in modes.items()
    }
    axes.fill_between(
        places, milliseconds["default"], milliseconds["stock"], color=ORANGE, alpha=0.1
    )
    for name, label, color, style, width in STEP_LINES:
        axes.plot(places, milliseconds[name], style, label=label, color=color, linewidth=width)
    # Below the axis, a row for each baseline.
    for name, color, row in BASELINES:
        for place, theirs, mine in zip(
            places, milliseconds[name], milliseconds["default"], strict=True
        ):
            axes.text(
                *(place, row, f"{theirs / mine:.1f} ×"),
                transform=axes.get_xaxis_transform(),
                color=color,
                weight="bold",
                ha="center",
            )
    axes.set_title(f"{title}\n{_millions(result['parameters'])} million parameters")
    axes.set_xscale("log")
    axes.set_xticks(places, [network_links.label(rate) for rate in rates], fontsize=10)
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xlim(places[0] / 2.6, places[-1] * 2.6)
    axes.grid(axis="y", color="#e6e6e6")
    axes.set_axisbelow(True)


def _millions(count: int) -> str:
    """Returns millions, with two digits or one after the point."""
    return f"{count / 1e6:.1f}" if count >= 1e6 else f"{count / 1e6:.2g}"


def draw_training() -> Any:
    """Draws a column for each task: the curves, and below them how far they are apart."""
    runs = [json.loads(line) for line in (report.RESULTS / "quality_runs.jsonl").open()]
    figure, every_axes = plt.subplots(
        2, len(TRAINING), figsize=(11.5, 5.6), sharex="col", height_ratios=(3, 2)
    )
    for i, (title, cell) in enumerate(TRAINING.items()):
        mine = [run for run in runs if run["cell"] == cell]
        _training_column(*every_axes[:, i], title, mine)
    every_axes[0, 0].set_ylabel("test perplexity")
    every_axes[1, 0].set_ylabel("difference in\nperplexity")
    figure.suptitle("Perplexity over steps, without and with compression", weight="bold")
    finish(
        figure,
        "benchmarks/results/quality_runs.jsonl: means over seeds, 4 replicas; the untrained model "
        "is above the axes.\nGrey band: the standard deviation of the seeds without compression. "
        "Less is better.",
    )
    return figure


def _training_column(curves: Any, differences: Any, title: str, runs: Sequence[Any]) -> None:
    base = _by_seed(runs, "none")
    every = runs[0]["every"]
    none = np.array(list(base.values()))
    steps = every * np.arange(none.shape[1])
    mean, spread = none.mean(axis=0), none.std(axis=0, ddof=1)
    curves.fill_between(steps, mean - spread, mean + spread, color=GREY, alpha=0.35, linewidth=0)
    curves.plot(steps, mean, color=INK, linewidth=3.2, label="uncompressed")
    percent = 100 * spread / mean
    differences.fill_between(steps, -percent, percent, color=GREY, alpha=0.35, linewidth=0)
    differences.axhline(0, color=INK, linewidth=1.5)
    for variant, (label, color, style) in LINES.items():
        by_seed = _by_seed(runs, variant)
        assert by_seed.keys() == base.keys()
        their_mean = np.mean(list(by_seed.values()), axis=0)
        curves.plot(steps, their_mean, color=color, linestyle=style, linewidth=1.6, label=label)
        off = 100 * (their_mean / mean - 1)
        differences.plot(steps, off, color=color, linestyle=style, linewidth=1.8)
    curves.set_title(f"{title} ({len(base)} seeds)")
    curves.set_yscale("log")
    curves.set_ylim(0.85 * mean[-1], 1.15 * mean[1])
    curves.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 7)))
    curves.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    curves.yaxis.set_minor_locator(ticker.NullLocator())
    curves.legend(frameon=False)
    differences.yaxis.set_major_formatter(
        ticker.FuncFormatter(lambda y, _: f"{y:+g} %" if y else "0 %")
    )
    differences.set_xlabel("steps")
    differences.set_xlim(0, steps[-1])
    for axes in (curves, differences):
        axes.grid(axis="y", color="#e6e6e6")
        axes.set_axisbelow(True)


def _by_seed(runs: Sequence[Any], variant: str) -> dict[int, list[float]]:
    return {run["seed"]: run["curve"] for run in runs if run["variant"] == variant}


def finish(figure: Any, caption: str) -> None:
    """Writes the caption below all panels, and makes room for it."""
    figure.text(0.01, 0.012, caption, color="#555555", fontsize=9)
    lines = caption.count("\n") + 1
    inches = 0.1 + 0.16 * lines
    figure.tight_layout(rect=(0, inches / figure.get_figheight(), 1, 1), w_pad=1.5)


def main() -> None:
    with plt.rc_context(STYLE):
        for name, draw in (("step_time", draw_step_time), ("training", draw_training)):
            path = report.RESULTS / f"overview_{name}.png"
            figure = draw()
            figure.savefig(path, dpi=130)
            plt.close(figure)
            print(f"written: {path}")


if __name__ == "__main__":
    main()
