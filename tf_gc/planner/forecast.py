"""What the planner says: a table, words, and a picture."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tf_gc.params import CompressionParams, Quantized
from tf_gc.planner.prediction import STOCK, Choice, Prediction

# Compression pays from this ratio on: what a step gains has to make up for the rounding, and for
# the error of the prediction.
PAYS = 1.1

# Where it is looked for the fastest link on which compression pays, in bits a second.
_SLOWEST, _FASTEST = 1e6, 1e13
_POINTS_IN_A_DECADE = 32


@dataclasses.dataclass(frozen=True)
class Forecast:
    """All predictions for a model.

    Attributes:
      choices: the ways to send gradients, without the stock strategy's.
      workers: the numbers of workers.
      rates: the rates of links, in bits a second.
      predict: predicts a choice for so many workers and a rate.
    """

    choices: tuple[Choice, ...]
    workers: tuple[int, ...]
    rates: tuple[float, ...]
    predict: Callable[[Choice, int, float], Prediction]

    def speedup(self, choice: Choice, workers: int, rate: float) -> float:
        """Returns the stock strategy's time of a step, divided by the choice's."""
        stock = self.predict(STOCK, workers, rate).seconds
        return stock / self.predict(choice, workers, rate).seconds

    def fastest_link_that_pays(self, choice: Choice, workers: int) -> float | None:
        """Returns the highest rate at which a choice pays, infinity if it does at all rates.

        `None` means that it pays at none.
        """
        decades = math.log10(_FASTEST / _SLOWEST)
        steps = round(decades * _POINTS_IN_A_DECADE)
        for step in range(steps, -1, -1):
            rate = _SLOWEST * 10 ** (step / _POINTS_IN_A_DECADE)
            if self.speedup(choice, workers, rate) >= PAYS:
                return math.inf if step == steps else rate
        return None


def rate_in_words(bits_per_second: float) -> str:
    """Returns a rate as people write it: "100 Mbit/s", "1.5 Gbit/s"."""
    for unit, size in (("Tbit", 1e12), ("Gbit", 1e9), ("Mbit", 1e6), ("kbit", 1e3)):
        if bits_per_second >= size:
            return f"{bits_per_second / size:.3g} {unit}/s"
    return f"{bits_per_second:.3g} bit/s"


def table(forecast: Forecast) -> str:
    """Returns a line for each number of workers and rate: ms of a step, and the ratio to stock."""
    header = f"{'workers':>7}  {'link':>10}  {'stock':>11}"
    header += "".join(f"  {choice.name:>17}" for choice in forecast.choices) + "  plan, wire"
    lines = [header]
    for workers in forecast.workers:
        for rate in forecast.rates:
            stock = forecast.predict(STOCK, workers, rate)
            line = f"{workers:7}  {rate_in_words(rate):>10}  {_ms(stock.seconds):>11}"
            plans: dict[str, None] = {}
            wires: dict[str, None] = {}
            for choice in forecast.choices:
                predicted = forecast.predict(choice, workers, rate)
                ratio = f"{stock.seconds / predicted.seconds:.1f}x"
                line += f"  {_ms(predicted.seconds):>11}{ratio:>6}"
                plans |= dict.fromkeys(predicted.plans)
                wires |= dict.fromkeys(predicted.wires)
            lines.append(f"{line}  {'/'.join(plans) or '-'}, {'/'.join(wires) or '-'}")
    return "\n".join(lines)


def words(forecast: Forecast) -> str:
    """Returns where compression pays, a paragraph for each number of workers."""
    default = _default(forecast.choices)
    paragraphs = []
    for workers in forecast.workers:
        if workers == 1:
            paragraphs.append("1 worker sends nothing, so there is nothing to compress.")
            continue
        who = f"With {workers:,} workers, {default.name}"
        if not forecast.predict(default, workers, forecast.rates[0]).plans:
            paragraphs.append(
                f"{who} compress nothing: no dense gradient is large enough. Stay with the stock "
                "strategy."
            )
            continue
        limit = forecast.fastest_link_that_pays(default, workers)
        if limit is None:
            said = f"{who} pay on no link: computing takes nearly all of the time."
        elif limit == math.inf:
            said = (
                f"{who} pay on every link, however fast, because what TensorFlow takes to send is "
                "itself a large part of the step."
            )
        else:
            said = f"{who} pay on links of up to about {rate_in_words(_rounded(limit))}."
        paragraphs.append(" ".join([said, *_at_rates(forecast, default, workers)]))
    paragraphs.append(
        f"To pay means that a step is at least {PAYS} times as fast. Fewer bits are rounded more "
        "coarsely: docs/precision.md says what that costs."
    )
    return "\n\n".join(paragraphs)


def _at_rates(forecast: Forecast, default: Choice, workers: int) -> list[str]:
    """Returns a sentence for each rate."""
    said = []
    for rate in forecast.rates:
        stock = forecast.predict(STOCK, workers, rate).seconds
        ours = forecast.predict(default, workers, rate).seconds
        sentence = f"At {rate_in_words(rate)} a step takes {_ms(ours)} instead of {_ms(stock)}"
        best = max(forecast.choices, key=lambda one: forecast.speedup(one, workers, rate))
        seconds = forecast.predict(best, workers, rate).seconds
        if stock < PAYS * min(ours, seconds):
            sentence += ", which is no reason to compress"
        elif ours >= PAYS * seconds:
            sentence += f", and {_ms(seconds)} with {best.name}"
        said.append(sentence + ".")
    return said


def _rounded(rate: float) -> float:
    return float(f"{rate:.1e}")  # two digits are all that a prediction is good for


def _default(choices: Sequence[Choice]) -> Choice:
    params: CompressionParams = Quantized()
    return next((choice for choice in choices if choice.params == params), choices[0])


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s"


def require_matplotlib() -> Any:
    """Returns matplotlib's pyplot, for files only.

    Raises:
      ImportError: if it is not installed; the message says how to install it.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("--plot needs matplotlib: pip install matplotlib") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw(forecast: Forecast, title: str, path: str | Path) -> None:
    """Draws the time of a step by the rate of the links, a panel for each number of workers.

    Args:
      forecast: the predictions; at least one number of workers is 2 or more.
      title: what is over the picture.
      path: the file to write; its suffix says the format.

    Raises:
      ImportError: if matplotlib is not installed.
      ValueError: if matplotlib knows no such format.
    """
    plt = require_matplotlib()
    panels = [workers for workers in forecast.workers if workers > 1]
    columns = len(panels) if len(panels) <= 4 else 3
    rows = -(-len(panels) // columns)
    figure, grid = plt.subplots(
        *(rows, columns),
        figsize=(1 + 4 * columns, 0.4 + 3.4 * rows),
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey=True,
    )
    low, high = min(forecast.rates) / 2, max(forecast.rates) * 2
    rates = [low * (high / low) ** (i / 40) for i in range(41)]
    lines: Mapping[Choice, str] = {STOCK: "k-", **dict.fromkeys(forecast.choices, "-")}
    for axes, workers in zip(grid.flat, panels, strict=False):
        for choice, style in lines.items():
            seconds = [forecast.predict(choice, workers, rate).seconds for rate in rates]
            axes.plot([rate / 1e9 for rate in rates], seconds, style, label=choice.name)
        alone = forecast.predict(STOCK, 1, rates[0]).seconds
        axes.axhline(alone, color="0.5", linestyle=":", label="computing alone")
        for rate in forecast.rates:
            axes.axvline(rate / 1e9, color="0.9", zorder=0)
        axes.set(xscale="log", yscale="log", title=f"{workers:,} workers")
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("rate of a link, Gbit/s")
    for axes in grid[:, 0]:
        axes.set_ylabel("predicted seconds a step")
    grid[0][0].legend(fontsize="small")
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    plt.close(figure)
