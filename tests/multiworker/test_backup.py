"""Jobs that are killed, or told to end, and go on where their backup is."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cases import cases, matrix
from tests.multiworker import cluster
from tests.multiworker.backup_scenarios import kills

pytestmark = pytest.mark.multiworker

EPOCHS, STEPS_PER_EPOCH = 16, 16
ROUNDING = 1e-4  # of a gradient of up to 3, for each step


@matrix
def test_two_kills_in_each_of_six_rounds_cost_no_accuracy(tmp_path: Path) -> None:
    folder = str(tmp_path / "backup")
    begun = []
    for seed in range(6):
        outcomes = cluster.run(
            "backup_scenarios:train", folder, EPOCHS, kills(seed, 60), may_fail=True
        )
        assert [outcome.returncode for outcome in outcomes] == [-signal.SIGKILL] * 2, outcomes
        begun.append((tmp_path / "backup").exists())
    assert begun[-1]

    resumed = cluster.values("backup_scenarios:train", folder, EPOCHS, {})
    quiet = cluster.values("backup_scenarios:train", str(tmp_path / "quiet"), EPOCHS, {})
    for report in resumed:
        assert report["epoch"] > 0
        assert report["start"] == report["epoch"] * STEPS_PER_EPOCH
    for report in (*resumed, *quiet):
        assert report["steps"] == EPOCHS * STEPS_PER_EPOCH
        assert report["missing"] < ROUNDING
        assert not report["left"]
    assert quiet[0]["accuracy"] > 0.5
    assert resumed[0]["accuracy"] == pytest.approx(quiet[0]["accuracy"], abs=0.02)


@cases("told, workers", (1, 2), (0, 1))
def test_all_workers_stop_at_the_same_step_if_one_gets_sigterm(
    tmp_path: Path, told: int, workers: int
) -> None:
    """The same or another number of workers goes on."""
    folder = str(tmp_path / "backup")
    signals = {told: (20, 0.0, signal.SIGTERM)}
    stopped = cluster.values(
        "backup_scenarios:train", folder, 100_000, signals, 0.002, False, devices=2
    )
    for report in stopped:
        assert report["preempted"]
        assert report["left"]
        assert report["steps"] == stopped[0]["steps"] > 0
        assert report["missing"] < ROUNDING
    epoch = stopped[0]["steps"] // STEPS_PER_EPOCH
    resumed = cluster.values(
        "backup_scenarios:train", folder, epoch + 2, {}, workers=workers, devices=2
    )
    for report in resumed:
        assert report["start"] == stopped[0]["steps"]
        assert report["epoch"] in (epoch, epoch - 1)
        assert not report["preempted"]
        assert not report["left"]
        assert report["missing"] < ROUNDING
