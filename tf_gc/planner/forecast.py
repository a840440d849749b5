"""The planner's output: a table, and words."""

import dataclasses
import math
from collections.abc import Callable

from tf_gc.params import CompressionParams, Quantized
from tf_gc.planner.prediction import STOCK, Prediction

# By their names in the table.
CHOICES: dict[str, CompressionParams] = {
    "1 bit": Quantized(1),
    "2 bits": Quantized(2),
    "3 bits": Quantized(3),
    "4 bits": Quantized(4),
}
DEFAULT = "3 bits"

# Compression pays from this ratio on: a step has to gain enough to make up for the rounding, and
# for the error of the prediction.
PAYS = 1.1

# Between these rates, in bits a second, the fastest link is sought on which compression pays.
_SLOWEST, _FASTEST = 1e6, 1e13
_POINTS_IN_A_DECADE = 32


@dataclasses.dataclass(frozen=True)
class Forecast:
    """All predictions for a model: for numbers of workers, and rates in bits a second."""

    workers: tuple[int, ...]
    rates: tuple[float, ...]
    predict: Callable[[CompressionParams, int, float], Prediction]

    def fastest_link_that_pays(self, workers: int) -> float | None:
        """Returns the highest rate at which the default pays, `None` if at none, or infinity."""
        steps = round(math.log10(_FASTEST / _SLOWEST) * _POINTS_IN_A_DECADE)
        for step in range(steps, -1, -1):
            rate = _SLOWEST * 10 ** (step / _POINTS_IN_A_DECADE)
            stock = self.predict(STOCK, workers, rate).seconds
            if stock >= PAYS * self.predict(CHOICES[DEFAULT], workers, rate).seconds:
                return math.inf if step == steps else rate
        return None


def table(forecast: Forecast) -> str:
    """Returns a line for each number of workers and rate: ms of a step, and the ratio to stock."""
    header = f"{'workers':>7}  {'link':>12}  {'stock':>11}"
    lines = [header + "".join(f"  {name:>17}" for name in CHOICES) + "  plan, wire"]
    for workers in forecast.workers:
        for rate in forecast.rates:
            stock = forecast.predict(STOCK, workers, rate)
            line = f"{workers:7}  {f'{rate / 1e9:g} Gbit/s':>12}  {_ms(stock.seconds):>11}"
            plans: dict[str, None] = {}
            for params in CHOICES.values():
                predicted = forecast.predict(params, workers, rate)
                ratio = f"{stock.seconds / predicted.seconds:.1f}x"
                line += f"  {_ms(predicted.seconds):>11}{ratio:>6}"
                plans |= dict.fromkeys(predicted.plans)
            lines.append(f"{line}  {'; '.join(plans) or '-'}")
    return "\n".join(lines)


def words(forecast: Forecast) -> str:
    """Returns where the default pays, a sentence for each number of workers."""
    said = []
    for workers in forecast.workers:
        who = f"With {workers:,} workers, {DEFAULT}"
        if not forecast.predict(CHOICES[DEFAULT], workers, forecast.rates[0]).plans:
            said.append(f"{who} compress nothing: no gradient is large enough.")
        elif (limit := forecast.fastest_link_that_pays(workers)) is None:
            said.append(f"{who} pay on no link: computing takes nearly all of the time.")
        elif limit == math.inf:
            said.append(
                f"{who} pay on every link, however fast, because what TensorFlow takes to send is "
                "itself a large part of the step."
            )
        else:
            said.append(f"{who} pay on links of up to about {limit / 1e9:.2g} Gbit/s.")
    said.append(
        f"To pay means that a step is at least {PAYS} times as fast. Fewer bits are rounded more "
        "coarsely: docs/precision.md says what that costs."
    )
    return "\n".join(said)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s"
