"""Faulty links and workers that stand still: right sums or an error in bounded time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import cases, matrix
from tests.multiworker import cluster, proxy
from tests.multiworker.fault_scenarios import QUIET, Report

pytestmark = [pytest.mark.multiworker, pytest.mark.waits]

AUTO = {"type": "2bit", "warm_up": False}
FIXED = {"type": "2bit", "threshold": 0.1}
SLOW = 60_000  # bytes a second: some seconds for a step
# A worker without heartbeats is given up after 10 seconds.
NOTICED = 40
# Either the timeout of the collectives ends a step, or TensorFlow misses heartbeats before.
STILL = ("DeadlineExceededError", "UnavailableError")
# The first call on a connection that was reset says "reset"; the later ones find it closed. Which
# of gRPC's threads reports its error is a matter of chance.
LOST = ("Connection reset", "Broken pipe", "Socket closed")


def run(scenario: str, *arguments: Any, workers: int = 2, **options: Any) -> list[Report]:
    """Runs a scenario; whatever happened, no sum was wrong and no worker ended by itself."""
    # A process that has made its report may fail to leave a broken cluster in an orderly way.
    outcomes = cluster.run(
        f"fault_scenarios:{scenario}", *arguments, workers=workers, may_fail=True, **options
    )
    assert all(outcome.value is not None for outcome in outcomes), outcomes
    reports = [outcome.value for outcome in outcomes]
    for report in reports:
        assert all(report.right), reports
    return reports


def assert_all_fail(reports: list[Report], errors: tuple[str, ...], seconds: float) -> None:
    """Each worker's step fails in time, after those without faults, and so does any other."""
    for report in reports:
        assert len(report.right) >= QUIET - 1, reports  # which one of them may just have missed
        first, second = report.endings
        assert first.error in errors, first
        assert first.seconds < seconds, first
        assert second.error in errors, second
        assert second.seconds < 15, second


@cases(
    "plan, workers, devices",
    ("scatter_gather", 3, 1),
    ("all_gather", 2, 1),
    ("hierarchical", 2, 2),
)
def test_a_reset_in_the_middle_of_a_transfer_ends_the_step_everywhere(
    plan: str, workers: int, devices: int
) -> None:
    params = {**(FIXED if plan == "hierarchical" else AUTO), "plan": plan}
    with proxy.links(workers) as links:
        reports = run(
            *("reset_in_a_step", links.port, params),
            **{"workers": workers, "devices": devices, "configs": links.configs},
        )
        assert links.resets > 0
    # One that lost nothing itself is told of the end of another's process, or its step takes too
    # long: TensorFlow 2.16 does not always tell.
    assert_all_fail(reports, STILL, NOTICED)
    firsts = [report.endings[0] for report in reports]
    losers = [first for first in firsts if any(words in first.message for words in LOST)]
    assert losers, firsts
    assert {first.error for first in losers} == {"UnavailableError"}, losers


@matrix
@pytest.mark.parametrize("params", [AUTO, {**FIXED, "plan": "scatter_gather"}])
def test_a_reset_between_steps_and_a_slow_link_change_no_sum(params: Any) -> None:
    with proxy.links(2) as links:
        reports = run(*("idle_reset_then_slow", links.port, params, SLOW), configs=links.configs)
        assert links.resets > 0
    for report in reports:
        assert len(report.right) == QUIET + 1, report
        assert not report.endings
        assert report.seconds[-1] > 1, "the link was not slow"


@cases("timeout_seconds", 4.0, None)
def test_a_link_that_stands_still_is_an_error(timeout_seconds: float | None) -> None:
    with proxy.links(2) as links:
        reports = run("stall", links.port, AUTO, timeout_seconds, configs=links.configs)
    assert_all_fail(reports, STILL, (timeout_seconds or NOTICED) + 6)


@matrix
@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_stopped_for_longer_than_the_timeout_fails_like_the_others(victim: int) -> None:
    timeout, short, long = 6.0, 2.0, 9.0
    reports = run("stop", victim, AUTO, timeout, {1: short, QUIET: long})
    others = [report for index, report in enumerate(reports) if index != victim]
    assert_all_fail(others, STILL, timeout + 6)
    for report in others:
        assert short - 1 < report.seconds[1] < timeout
    assert_all_fail([reports[victim]], STILL, timeout + 6)


@matrix
def test_only_a_collective_that_takes_too_long_meets_its_deadline() -> None:
    limit = 5.0
    (outcome,) = cluster.run("fault_scenarios:deadlines", limit, workers=1, may_fail=True)
    in_time, cancelled, later, alone, after = outcome.value
    assert in_time.error == ""
    assert cancelled.error == "InvalidArgumentError"
    assert later.error == ""
    assert alone.error == "DeadlineExceededError"
    assert f"a collective took longer than {limit:g} seconds" in alone.message
    assert alone.seconds > limit - 0.1
    assert after.error == "DeadlineExceededError"  # as after any error of a collective
