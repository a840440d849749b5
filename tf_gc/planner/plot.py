"""The planner's picture: the time of a step over the rate of the links."""

from collections.abc import Sequence
from pathlib import Path

from tf_gc.planner import forecast


def draw(
    predict: forecast.Predict, numbers: Sequence[int], rates: Sequence[float], path: Path
) -> None:
    """Writes a panel for each number of workers; a dot ends the rates on which a choice pays.

    It goes from a third of the slowest rate to three times the fastest one, in bits a second.
    """
    from matplotlib import figure, ticker  # which nothing else of tf_gc needs

    low, high = min(rates) / 3, max(rates) * 3
    points = [low * (high / low) ** (i / 99) for i in range(100)]
    choices = {**forecast.BASES, **forecast.CHOICES}
    styles = ["k-", "k--", *(f"C{i}" for i in range(len(forecast.CHOICES)))]
    picture = figure.Figure(figsize=(1 + 4 * len(numbers), 4.2), layout="constrained")
    every_axes = picture.subplots(1, len(numbers), sharey=True, squeeze=False)[0]
    for axes, workers in zip(every_axes, numbers, strict=True):
        for style, (name, params) in zip(styles, choices.items(), strict=True):
            ms = [1e3 * predict(params, workers, rate).seconds for rate in points]
            axes.loglog([rate / 1e9 for rate in points], ms, style, label=name)
            limit = forecast.fastest_link_that_pays(predict, workers, params)
            if limit is not None and low <= limit <= high:
                axes.plot(limit / 1e9, 1e3 * predict(params, workers, limit).seconds, f"{style}o")
        axes.set(title=f"{workers:,} worker{'s' if workers > 1 else ''}", xlabel="Gbit/s of a link")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(ticker.LogFormatter())
            axis.set_minor_formatter(ticker.LogFormatter(minor_thresholds=(2, 0.5)))
    every_axes[0].set_ylabel("milliseconds of a step, predicted")
    every_axes[-1].legend(title=f"dot: {forecast.PAYS} times as fast as stock")
    picture.savefig(path, dpi=120)
