"""Parameter servers and workers as processes, that live and die."""

from pathlib import Path

import numpy as np
import pytest

from tests.cases import matrix
from tests.multiworker import cluster, servers

pytestmark = [pytest.mark.multiworker, pytest.mark.waits]

LIMIT = 120  # seconds, for what else would never end


@matrix
def test_processes_train(tmp_path: Path) -> None:
    configs = servers.tf_configs(2, 2)
    outcome, *_ = cluster.values(
        "server_process_scenarios:train", str(tmp_path), 120, configs=configs, limit=LIMIT
    )
    losses = outcome["losses"]
    assert np.mean(losses[-10:]) < 0.01 * losses[0]
    assert outcome["done"] == len(losses)
    assert outcome["agree"]


def test_a_worker_that_dies_and_comes_back_goes_on(tmp_path: Path) -> None:
    # The scenario starts the last worker, and kills it.
    configs = [c for c in servers.tf_configs(2, 1) if '"worker", "index": 1' not in c]
    outcome, *_ = cluster.values(
        "server_process_scenarios:kill_and_restart",
        str(tmp_path),
        1,
        configs=configs,
        limit=LIMIT,
    )
    assert len(outcome["losses"]) == outcome["scheduled"]  # none was lost
    assert outcome["done"] >= outcome["scheduled"]  # one that runs again may count twice
    assert outcome["agree"]
    assert np.mean(outcome["losses"][-10:]) < 0.01 * outcome["losses"][0]


@matrix
def test_nobody_but_its_own_step_waits_for_a_worker_that_stands_still(tmp_path: Path) -> None:
    configs = [c for c in servers.tf_configs(2, 1) if '"worker", "index": 1' not in c]
    outcome, *_ = cluster.values(
        "server_process_scenarios:stop_and_continue", str(tmp_path), configs=configs, limit=LIMIT
    )
    assert outcome["done"] == 240
    assert outcome["agree"]


def test_a_task_without_the_native_ops_is_named(tmp_path: Path) -> None:
    configs = [c for c in servers.tf_configs(1, 1) if '"type": "worker"' not in c]
    said, *_ = cluster.values(
        "server_process_scenarios:without_ops", str(tmp_path), configs=configs, limit=LIMIT
    )
    assert said.startswith("/job:worker/task:0 cannot run tf_gc's native ops"), said
    assert "tf_gc.run_server()" in said


@matrix
def test_a_dead_server_is_an_error(tmp_path: Path) -> None:
    configs = [c for c in servers.tf_configs(1, 1) if '"type": "ps"' not in c]
    said, *_ = cluster.values(
        "server_process_scenarios:dead_server", str(tmp_path), configs=configs, limit=LIMIT
    )
    assert said == "UnavailableError"
