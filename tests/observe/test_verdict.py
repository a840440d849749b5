"""The verdict, as a function of numbers, and the log that users see without asking for it."""

import logging as python_logging
import math
import re
from typing import Any

import numpy as np
import pytest
from absl import logging
from hypothesis import given
from hypothesis import strategies as st

import tf_gc
from tf_gc.network.traffic import Traffic
from tf_gc.observe.log import log_visibly
from tf_gc.observe.report import Comparison, Report, StepTime, duration
from tf_gc.observe.verdict import LONG_WARM_UP, STEPS, judge

TRAFFIC = Traffic("all_gather", 2, 1, 3, 0, sent_bytes=1_000_000, stock_bytes=10_000_000)


def around(median: float, count: int, spread: float = 0.05) -> list[float]:
    """Times that lie evenly around a median, in no order."""
    times = median * np.linspace(1 - spread, 1 + spread, count)
    return np.random.default_rng(1).permutation(times).tolist()


def report(full: list[float], compressed: list[float], params: Any = None, **fields: Any) -> Report:
    return Report(
        params or tf_gc.Quantized(),
        TRAFFIC,
        full_precision=StepTime.of(full),
        compressed=StepTime.of(compressed),
        comparison=Comparison.of(full, compressed),
        warm_up_steps=len(full) + 1 if full else 0,
        compressed_steps=len(compressed) + 1,
        **fields,
    )


@pytest.mark.parametrize(
    ("full", "spread", "level", "says"),
    [
        (0.5, 0.05, logging.INFO, "compression pays: "),
        (0.08, 0.01, logging.WARNING, "compression makes steps slower: "),
        (0.1, 0.01, logging.WARNING, "compression does not make steps faster: "),
    ],
)
def test_the_intervals_of_both_medians_decide(
    full: float, spread: float, level: int, says: str
) -> None:
    verdict = judge(report(around(full, 30, spread), around(0.1, 40, spread)))
    assert (verdict.level, verdict.is_last) == (level, True)
    assert f"{says}a step takes " in verdict.text
    compressed, other, ratio = re.findall(
        r"takes (\S+) ms compressed and (\S+) ms in full precision, ratio (\S+)", verdict.text
    )[0]
    assert float(compressed) == pytest.approx(100, 0.1 + spread)
    assert float(other) == pytest.approx(1e3 * full, 0.1 + spread)
    assert float(ratio) == pytest.approx(float(other) / float(compressed), 0.01)
    assert "sends 1,000,000 bytes a step instead of 10,000,000" in verdict.text
    assert ('{"type": "none"}' in verdict.text) == (level == logging.WARNING)


@pytest.mark.parametrize(
    ("full", "spread"),
    [([], 0.05), (around(0.5, 2), 0.05), *((around(t, 30, 0.9), 0.9) for t in (0.08, 0.1, 0.12))],
)
def test_where_steps_do_not_show_it_the_line_says_what_is_sent(
    full: list[float], spread: float
) -> None:
    verdict = judge(report(full, around(0.1, 40, spread)))
    assert (verdict.level, verdict.is_last) == (logging.INFO, True)
    time = re.fullmatch(
        "tf_gc: gradients are compressed: a replica sends 1,000,000 bytes a step instead of "
        r"10,000,000, and a step takes (\S+) ms \(median of 40 steps\)\.",
        verdict.text,
    )
    assert float(time[1]) == pytest.approx(100, 0.1 + spread)


def test_it_waits_for_enough_compressed_steps() -> None:
    assert judge(Report(tf_gc.Quantized())) is None
    assert judge(report(around(0.5, 20), around(0.1, STEPS - 1))) is None
    assert judge(report(around(0.5, 20), around(0.1, STEPS))) is not None
    params = tf_gc.Quantized()
    assert judge(Report(params, TRAFFIC, warm_up_steps=LONG_WARM_UP, compressed_steps=1)) is None
    warned = judge(Report(params, TRAFFIC, warm_up_steps=LONG_WARM_UP))
    assert (warned.level, warned.is_last) == (logging.WARNING, False)


@given(st.lists(st.floats(1e-6, 1e3), max_size=80))
def test_a_median_has_the_confidence_interval_of_its_order_statistics(times: list[float]) -> None:
    found = StepTime.of(times)
    if len(times) < 6:
        assert found is None
        return
    ordered = sorted(times)
    assert found.median == pytest.approx(np.median(times))
    assert found.steps == len(times)
    assert found.low <= found.median <= found.high
    # The chance that the median lies outside is at most 5%, and one rank further in it is not.
    outside = [
        2 * sum(math.comb(len(times), k) for k in range(rank)) / 2 ** len(times)
        for rank in range(1, len(times) // 2 + 1)
    ]
    rank = sum(chance <= 0.05 for chance in outside)
    assert (found.low, found.high) == (ordered[rank - 1], ordered[-rank])


def test_steps_are_compared_around_the_end_of_the_warm_up() -> None:
    # The machine was slower in the first half of the warm-up, and gets slower again later.
    full = around(0.9, 40) + around(0.2, 30)
    compressed = around(0.1, 30) + around(0.9, 200)
    found = Comparison.of(full, compressed)
    assert (found.full_precision.steps, found.compressed.steps) == (30, 30)
    assert found.ratio == pytest.approx(2, rel=0.05)
    assert found.low < found.ratio < found.high
    short = Comparison.of(around(0.9, 10), compressed)
    assert (short.full_precision.steps, short.compressed.steps) == (10, 10)
    assert Comparison.of(full, compressed[:5]) is None
    assert Comparison.of(full[:5], compressed) is None


@pytest.mark.parametrize(
    ("seconds", "words"), [(12.345, "12.3 s"), (1.0, "1 s"), (0.1234, "123 ms"), (5e-5, "0.05 ms")]
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_good_news_is_seen_unless_somebody_silences_warnings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # As in a new process: nobody has set up logging, and absl shows warnings.
    mine = python_logging.getLogger("absl.tf_gc")
    before = logging.get_verbosity()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_logging.root, "handlers", [])
        logging.set_verbosity(logging.WARNING)
        logging.info("hidden")
        log_visibly("tf_gc: 100% better")
        logging.set_verbosity(logging.ERROR)
        log_visibly("silenced")
        logging.set_verbosity(logging.WARNING)
        mine.setLevel(python_logging.WARNING)
        log_visibly("silenced")
        mine.setLevel(python_logging.INFO)
    logging.set_verbosity(before)
    assert capsys.readouterr().err == "INFO:absl.tf_gc:tf_gc: 100% better\n"
