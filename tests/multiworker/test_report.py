"""Reports of workers, and the verdict, which the chief says for all of them."""

import dataclasses
import logging
import logging.handlers
import time
from typing import Any

import numpy as np
import pytest

import tf_gc
from tests.cases import matrix
from tests.multiworker import cluster
from tests.strategies.helpers import normal, reducer, variables_of
from tf_gc.params.composed import COMPRESSED, FULL_PRECISION

pytestmark = pytest.mark.multiworker

SHAPES = [(50, 100), (3000,)]


def steps_and_report(params: Any) -> dict[str, Any]:
    """Makes compressed steps; returns the verdicts in this worker's log, and the report."""
    log = logging.handlers.BufferingHandler(10**6)
    log.addFilter(lambda record: "a step takes" in record.getMessage())
    logging.getLogger("absl").addHandler(log)
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
    strategy.measure_every(1)  # so that the report is on the latest step, as `traffic` is
    run = reducer(strategy, variables_of(strategy, *SHAPES))
    for number in range(80):
        (sums,) = run(normal(SHAPES, number, scale=1 / (number + 1)))
    deadline = time.monotonic() + (600 if strategy.is_chief else 3)
    while not log.buffer and time.monotonic() < deadline:
        time.sleep(0.1)
    logging.getLogger("absl").removeHandler(log)
    return {
        "verdicts": [record.getMessage() for record in log.buffer],
        "report": strategy.report(),
        "traffic": strategy.traffic,
        "sums": sums,
    }


def try_and_repeat() -> list[dict[str, Any]]:
    params = tf_gc.Auto(tf_gc.Quantized(warm_up=False))
    tried = steps_and_report(params)
    chosen = dataclasses.replace(params, choice=tried["report"].trial.chosen)
    return [tried, steps_and_report(chosen)]


def test_only_the_chief_says_the_verdict_and_reports_agree_on_bytes() -> None:
    params = tf_gc.Quantized(plan="all_gather", wire="compact")
    workers = cluster.values(steps_and_report, params)
    assert [len(worker["verdicts"]) for worker in workers] == [1, 0]
    chief, other = (worker["report"] for worker in workers)
    assert chief.traffic == other.traffic == workers[0]["traffic"]
    assert not chief.traffic.at_most
    assert {bucket.wire for bucket in chief.buckets} == {"compact"}
    sizes = [[bucket.sent_bytes for bucket in report.buckets] for report in (chief, other)]
    assert sizes[0] == sizes[1]
    assert sum(sizes[0]) == chief.traffic.sent_bytes < chief.traffic.stock_bytes
    for report in (chief, other):
        assert report.warm_up_steps == chief.warm_up_steps > 10
        assert report.warm_up_steps + report.compressed_steps == 80
        assert 0.1 < report.density < 1
        assert 0 < report.residual_ratio < 10
    shown = not chief.comparison.shows_nothing
    assert (f"ratio {chief.ratio:.2f}" in workers[0]["verdicts"][0]) == shown


@matrix
def test_workers_try_and_choose_alike() -> None:
    workers, again = zip(*cluster.values(try_and_repeat), strict=True)
    assert [len(worker["verdicts"]) for worker in workers] == [1, 0]
    chief, other = (worker["report"] for worker in workers)
    assert chief.trial == other.trial
    full, compressed = chief.trial.seconds
    faster = COMPRESSED if compressed < full else FULL_PRECISION
    assert chief.trial.chosen == chief.trial.current == faster
    assert chief.traffic == other.traffic == workers[0]["traffic"]
    # The same choice gives the same bits.
    for sums in (workers[1]["sums"], again[0]["sums"]):
        for mine, its in zip(workers[0]["sums"], sums, strict=True):
            np.testing.assert_array_equal(mine, its)
