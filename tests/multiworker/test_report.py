"""Reports of workers, and the verdict, which the chief says for all of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import tf_gc
from tests.cases import cases, matrix
from tests.multiworker import cluster
from tf_gc.params.composed import COMPRESSED, FULL_PRECISION

pytestmark = pytest.mark.multiworker


@cases("plan, wire", ("all_gather", "compact"), ("scatter_gather", "packed"))
def test_only_the_chief_says_the_verdict_and_reports_agree_on_bytes(plan: str, wire: str) -> None:
    params = tf_gc.Quantized(plan=plan, wire=wire)
    reports = cluster.values("report_scenarios:steps_and_report", params)
    assert [worker["chief"] for worker in reports] == [True, False]
    assert [len(worker["verdicts"]) for worker in reports] == [1, 0]
    chief, other = (worker["report"] for worker in reports)
    assert chief.traffic == other.traffic == reports[0]["traffic"]
    assert not chief.traffic.at_most
    assert {bucket.wire for bucket in chief.buckets} == {wire}
    sizes = [[bucket.sent_bytes for bucket in report.buckets] for report in (chief, other)]
    assert sizes[0] == sizes[1]
    assert sum(sizes[0]) == chief.traffic.sent_bytes < chief.traffic.stock_bytes
    for report in (chief, other):
        assert report.warm_up_steps == chief.warm_up_steps > 10
        assert report.warm_up_steps + report.compressed_steps == 80
        assert report.comparison is not None
        assert 0.1 < report.density < 1
        assert 0 < report.residual_ratio < 10
    assert f"ratio {chief.ratio:.2f}" in reports[0]["verdicts"][0]


@matrix
def test_workers_try_and_choose_alike() -> None:
    params = tf_gc.Auto(tf_gc.Quantized(warm_up=False))
    reports = cluster.values("report_scenarios:steps_and_report", params)
    assert [len(worker["verdicts"]) for worker in reports] == [1, 0]
    chief, other = (worker["report"] for worker in reports)
    assert chief.trial == other.trial
    full, compressed = chief.trial.seconds
    faster = COMPRESSED if compressed < full else FULL_PRECISION
    assert chief.trial.chosen == chief.trial.current == faster
    assert chief.traffic == other.traffic == reports[0]["traffic"]
    for mine, its in zip(reports[0]["sums"], reports[1]["sums"], strict=True):
        np.testing.assert_array_equal(mine, its)
    # The same choice gives the same bits.
    again = cluster.values(
        "report_scenarios:steps_and_report", dataclasses.replace(params, choice=chief.trial.chosen)
    )
    for mine, its in zip(reports[0]["sums"], again[0]["sums"], strict=True):
        np.testing.assert_array_equal(mine, its)


def test_only_the_chief_writes_for_tensorboard(tmp_path: Path) -> None:
    chief, other = cluster.values("report_scenarios:fit_with_monitor", str(tmp_path))
    assert len(chief) == 1
    assert chief[0].startswith("events.out.tfevents")
    assert other == []
