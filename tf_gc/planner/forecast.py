"""The planner's output: a table, and words."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tf_gc.params import CompressionParams, Quantized
from tf_gc.planner.prediction import STOCK, Prediction

# By their names in the table.
CHOICES: dict[str, CompressionParams] = {
    "1 bit": Quantized(1),
    **{f"{bits} bits": Quantized(bits) for bits in (2, 3, 4, 8)},
}
DEFAULT = "3 bits"

# Compression pays from this ratio on: a step has to gain enough to make up for the rounding, and
# for the error of the prediction.
PAYS = 1.1

# Between these rates, in bits a second, the fastest link is sought on which compression pays.
_SLOWEST, _FASTEST = 1e6, 1e13
_POINTS_IN_A_DECADE = 32


# Predicts a model's step, for a number of workers and a rate in bits a second.
Predict: TypeAlias = Callable[[CompressionParams, int, float], Prediction]


def fastest_link_that_pays(predict: Predict, workers: int) -> float | None:
    """Returns the highest rate at which the default pays, `None` if at none, or infinity."""
    steps = round(math.log10(_FASTEST / _SLOWEST) * _POINTS_IN_A_DECADE)
    for step in range(steps, -1, -1):
        rate = _SLOWEST * 10 ** (step / _POINTS_IN_A_DECADE)
        stock = predict(STOCK, workers, rate).seconds
        if stock >= PAYS * predict(CHOICES[DEFAULT], workers, rate).seconds:
            return math.inf if step == steps else rate
    return None


def table(predict: Predict, numbers: Sequence[int], rates: Sequence[float]) -> str:
    """Returns a line for each number of workers and rate: ms of a step, and the ratio to stock."""
    header = ["workers", f"{'link':>12}", f"{'stock':>11}", *(f"{name:>17}" for name in CHOICES)]
    lines = ["  ".join([*header, "plan, wire"])]
    for workers, rate in itertools.product(numbers, rates):
        stock = predict(STOCK, workers, rate).seconds
        cells = [f"{workers:7}", f"{f'{rate / 1e9:g} Gbit/s':>12}", f"{_ms(stock):>11}"]
        takers: dict[str, list[str]] = {}
        for name, params in CHOICES.items():
            predicted = predict(params, workers, rate)
            ratio = f"{stock / predicted.seconds:.1f}x"
            cells.append(f"{_ms(predicted.seconds):>11}{ratio:>6}")
            takers.setdefault(" and ".join(dict.fromkeys(predicted.plans)) or "-", []).append(name)
        plans = [f"{', '.join(names)}: {plan}" for plan, names in takers.items()]
        lines.append("  ".join([*cells, "; ".join(plans if len(plans) > 1 else takers)]))
    return "\n".join(lines)


def words(predict: Predict, numbers: Sequence[int]) -> str:
    """Returns where the default pays, a sentence for each number of workers."""
    said = []
    for workers in numbers:
        who = f"With {workers:,} workers, {DEFAULT}"
        if not predict(CHOICES[DEFAULT], workers, _FASTEST).plans:
            said.append(f"{who} compress nothing: no gradient is large enough.")
        elif (limit := fastest_link_that_pays(predict, workers)) is None:
            said.append(f"{who} pay on no link: computing takes nearly all of the time.")
        elif limit == math.inf:
            said.append(
                f"{who} pay on every link, however fast, because TensorFlow's own time to send "
                "is a large part of the step."
            )
        else:
            said.append(f"{who} pay on links of up to about {limit / 1e9:.2g} Gbit/s.")
    said.append(
        f"To pay means that a step is at least {PAYS} times as fast. Fewer bits are rounded more "
        "coarsely, which the planner does not weigh."
    )
    return "\n".join(said)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s"
