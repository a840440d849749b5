"""The planner's output: a table, and words."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tf_gc import ops
from tf_gc.params import Cast, CompressionParams, Quantized
from tf_gc.planner.prediction import STOCK, Prediction

# The baselines by their names in the table: the stock strategy, and half of its bytes.
BASES: dict[str, CompressionParams] = {"stock": STOCK, "16 bits": Cast()}
CHOICES: dict[str, CompressionParams] = {
    f"{bits} bit{'s' if bits > 1 else ''}": Quantized(bits) for bits in ops.codecs_by_bits()
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


def fastest_link_that_pays(
    predict: Predict,
    workers: int,
    params: CompressionParams = CHOICES[DEFAULT],
    base: CompressionParams = STOCK,
) -> float | None:
    """Returns the highest rate at which params pay, `None` if at none, or infinity."""
    steps = round(math.log10(_FASTEST / _SLOWEST) * _POINTS_IN_A_DECADE)
    for step in range(steps, -1, -1):
        rate = _SLOWEST * 10 ** (step / _POINTS_IN_A_DECADE)
        seconds = predict(base, workers, rate).seconds
        if seconds >= PAYS * predict(params, workers, rate).seconds:
            return math.inf if step == steps else rate
    return None


def table(predict: Predict, numbers: Sequence[int], rates: Sequence[float]) -> str:
    """Returns a line for each number of workers and rate: ms of a step, ratios to the bases."""
    bases = (f"{name:>11}" for name in BASES)
    header = ["workers", f"{'link':>12}", *bases, *(f"{name:>21}" for name in CHOICES)]
    lines = ["  ".join([*header, "plan, wire"])]
    for workers, rate in itertools.product(numbers, rates):
        seconds = [predict(base, workers, rate).seconds for base in BASES.values()]
        cells = [f"{workers:7}", f"{f'{rate / 1e9:g} Gbit/s':>12}"]
        cells += [f"{_ms(each):>11}" for each in seconds]
        takers: dict[str, list[str]] = {}
        for name, params in CHOICES.items():
            predicted = predict(params, workers, rate)
            ratios = "/".join(f"{each / predicted.seconds:.1f}" for each in seconds) + "x"
            cells.append(f"{_ms(predicted.seconds):>11}{ratios:>10}")
            takers.setdefault(" and ".join(dict.fromkeys(predicted.plans)) or "-", []).append(name)
        plans = [f"{', '.join(names)}: {plan}" for plan, names in takers.items()]
        lines.append("  ".join([*cells, "; ".join(plans if len(plans) > 1 else takers)]))
    return "\n".join(lines)


def words(predict: Predict, numbers: Sequence[int]) -> str:
    """Returns where the default pays, a sentence for each number of workers."""
    said = []
    for workers in numbers:
        who = f"With {workers:,} worker{'s' if workers > 1 else ''}, {DEFAULT}"
        if not predict(CHOICES[DEFAULT], workers, _FASTEST).plans:
            said.append(f"{who} compress nothing: no gradient is large enough.")
            continue
        limits = (fastest_link_that_pays(predict, workers, base=base) for base in BASES.values())
        stock, half = map(_where, limits)
        said.append(f"{who} pay on {stock}; against 16 bits, on {half}.")
    said.append(
        f"To pay means that a step is at least {PAYS} times as fast; ratios are to the stock "
        "strategy and to 16 bits (tf_gc.Cast). Fewer bits are rounded more coarsely, which the "
        "planner does not weigh."
    )
    return "\n".join(said)


def _where(limit: float | None) -> str:
    if limit is None:
        return "no link"
    if limit == math.inf:
        return "every link, however fast"
    return f"links of up to about {float(f'{limit / 1e9:.2g}'):g} Gbit/s"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s"
