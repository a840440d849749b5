"""The verdict: one line that says whether compression makes the steps of this run faster."""

import dataclasses

from absl import logging

from tf_gc.observe.report import Report, TrialReport
from tf_gc.params import Auto, NoCompression
from tf_gc.params.composed import COMPRESSED

# How many compressed steps there are before the verdict.
STEPS = 30

# A warm-up that has not ended by then may never end. In benchmarks/quality.py they take 12 to 63.
LONG_WARM_UP = 300


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A line for the log.

    Its level is WARNING if compression does not pay or has not begun, INFO otherwise. If it
    `is_last`, there is nothing more to say later on.
    """

    level: int
    text: str
    is_last: bool = True


def judge(report: Report) -> Verdict | None:
    """Returns the verdict on a run; `None` if too few steps were compressed so far.

    It rests on the 95% confidence intervals of the median times of steps right before and right
    after the end of the warm-up. Compression pays if all ratios within them are above 1, and does
    not if all are below 1.05; otherwise the line says no more than what is sent.
    """
    if report.warm_up_steps >= LONG_WARM_UP and report.compressed_steps == 0:
        return Verdict(
            logging.WARNING,
            f"tf_gc: the warm-up has not ended after {report.warm_up_steps} steps, and gradients "
            "are still summed in full precision: the norm of the sums keeps growing. If that is "
            "expected, compress from the first step on: warm_up=False, as in "
            "tf_gc.Quantized(warm_up=False). If not, training may diverge.",
            is_last=False,
        )
    if report.trial is not None:
        return _choice(report, report.trial)
    time, traffic = report.compressed, report.traffic
    if time is None or traffic is None or report.compressed_steps <= STEPS:
        return None
    most = "at most " if traffic.at_most else ""
    sent = (
        f"a replica sends {most}{traffic.sent_bytes:,} bytes a step instead of "
        f"{traffic.stock_bytes:,}"
    )
    compared = report.comparison
    if compared is None or compared.shows_nothing:
        return Verdict(
            logging.INFO, f"tf_gc: gradients are compressed: {sent}, and a step takes {time}."
        )
    measured = f"a step takes {compared}; {sent}"
    if compared.low > 1:
        return Verdict(logging.INFO, f"tf_gc: compression pays: {measured}.")
    how = "makes steps slower" if compared.high < 1 else "does not make steps faster"
    return Verdict(
        logging.WARNING,
        f"tf_gc: compression {how}: {measured}. It pays where sending gradients takes a large part "
        'of a step. compression_params={"type": "none"} trains without it.',
    )


def _choice(report: Report, trial: TrialReport) -> Verdict | None:
    if trial.chosen is None:
        return None
    auto = report.compression_params
    assert isinstance(auto, Auto)
    equivalent = auto.params if trial.chosen == COMPRESSED else NoCompression()
    return Verdict(
        logging.INFO,
        f"tf_gc: Auto chooses {trial.chosen}: a step takes {trial.times} (medians of the slowest "
        f"worker). To train so from the first step on: compression_params={equivalent!r}. "
        f"To repeat this run to the bit: {dataclasses.replace(auto, choice=trial.chosen)!r}.",
    )
