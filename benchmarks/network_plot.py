"""The pictures of benchmarks/network.py."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import network_links
import network_peers
from matplotlib import pyplot as plt
from matplotlib import ticker

# The line and the name of what computes and sends nothing.
_ALONE = {
    "alone": ("k--", "computing alone"),
    "torch:alone": ("k:", "computing alone, PyTorch"),
}


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Writes step time against rate to `path`.png, and against workers to `path`_workers.png.

    Args:
      result: what network.py writes as JSON.
      path: any suffix is replaced.
    """
    model = f"{result['options']['model']}, {result['parameters'] / 1e6:.3g} M parameters"
    by_workers = {int(workers): one["rates"] for workers, one in result["workers"].items()}
    rates = result["options"]["rates"]
    ticks = [_position(rate, rates) for rate in rates]
    panels = {
        f"{model}, {workers} workers": [
            (tick, one[rate]["modes"]) for tick, rate in zip(ticks, rates, strict=True)
        ]
        for workers, one in by_workers.items()
    }
    figure, all_axes = _figure(panels)
    for axes in all_axes:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(ticks, [network_links.label(rate) for rate in rates])
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())
        axes.set_xlabel("rate of each link")
    figure.savefig(path.with_suffix(".png"), dpi=120)

    if len(by_workers) > 1:
        panels = {
            f"{model}, {network_links.label(rate)}": [
                (workers, one[rate]["modes"]) for workers, one in by_workers.items()
            ]
            for rate in rates
        }
        figure, all_axes = _figure(panels)
        for axes in all_axes:
            axes.set_ylim(bottom=0)
            axes.set_xticks(list(by_workers))
            axes.set_xlabel("workers")
        figure.savefig(path.with_name(f"{path.stem}_workers.png"), dpi=120)


def _figure(panels: Mapping[str, Sequence[tuple[float, Mapping[str, Any]]]]) -> Any:
    """Draws a panel for each title, a line for each mode, and returns figure and axes."""
    figure, ((*all_axes,),) = plt.subplots(
        *(1, len(panels)),
        figsize=(2.5 + 4.5 * len(panels), 3.8),
        layout="constrained",
        squeeze=False,
        sharey=True,
    )
    for axes, (title, points) in zip(all_axes, panels.items(), strict=True):
        for mode in points[0][1]:
            seconds = [modes[mode]["seconds"] for _, modes in points]
            line, label = _ALONE.get(mode, ("s:" if network_peers.peer(mode) else "o-", mode))
            axes.plot(
                [x for x, _ in points],
                [math.nan if one is None else 1e3 * one for one in seconds],  # a peer that failed
                line,
                label=label,
            )
        axes.set_title(title)
    all_axes[0].set_ylabel("ms per step")
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside right center")
    return figure, all_axes


def _position(rate: str, rates: Sequence[str]) -> float:
    """Returns where a rate is on the axis: "none" is a place beyond the fastest."""
    speeds = [speed for one in rates if (speed := network_links.bits_per_second(one))]
    return network_links.bits_per_second(rate) or 5 * max(speeds, default=1e9)
