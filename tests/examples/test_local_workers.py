"""The launcher of local workers, which examples, benchmarks and tests share."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from examples.local_workers import (
    LocalWorkers,
    environment,
    free_ports,
    local_addresses,
    tf_configs,
)
from tests.programs import ROOT

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def fail(status: int) -> list[str]:
    return [sys.executable, "-c", f"raise SystemExit({status})"]


def test_ports_are_free_and_different() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    socket.create_server(("127.0.0.1", ports[0])).close()


@pytest.mark.parametrize("chief", [False, True])
def test_configs_name_all_workers_and_each_one(chief: bool) -> None:
    addresses = local_addresses(3)
    configs = [json.loads(config) for config in tf_configs(addresses, chief)]
    cluster = configs[0]["cluster"]
    assert [address for job in cluster.values() for address in job] == addresses
    assert all(config["cluster"] == cluster for config in configs)
    mine = [cluster[c["task"]["type"]][c["task"]["index"]] for c in configs]
    assert mine == addresses
    assert ("chief" in cluster) == chief


def test_a_worker_gets_its_config_and_variables_and_asks_no_proxy_for_others(
    tmp_path: Path,
) -> None:
    (config,) = tf_configs(["10.0.0.1:1"])
    assert environment(config)["no_grpc_proxy"] == "10.0.0.1"
    show = "import os; print(os.environ['TF_CONFIG'], os.environ['MINE'])"
    with LocalWorkers() as workers, open(tmp_path / "log", "wb") as log:
        workers.start([sys.executable, "-c", show], config, {"MINE": "seen"}, stdout=log)
        assert workers.wait(600) is None
    assert (tmp_path / "log").read_text() == f"{config} seen\n"


def test_the_worker_that_was_killed_is_named_before_those_that_noticed() -> None:
    with LocalWorkers() as workers:
        noticed, killed = workers.start(fail(1), None), workers.start(SLEEP, None)
        noticed.wait()
        killed.kill()
        killed.wait()
        assert workers.wait() == 1


def test_workers_that_take_too_long_are_killed() -> None:
    with LocalWorkers() as workers:
        sleeping = workers.start(SLEEP, None)
        with pytest.raises(TimeoutError, match=r"workers \[0\] still run after 0.2 s"):
            workers.wait(0.2)
    assert sleeping.returncode < 0


@pytest.mark.parametrize("ends", ["a worker dies", "Ctrl-C"])
def test_no_worker_outlives_the_program_that_starts_it(tmp_path: Path, ends: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "import os, sys, time\n"
        "from examples import local_workers\n"
        "if 'TF_CONFIG' not in os.environ:\n"
        "    sys.exit(local_workers.launch(2))\n"
        "print('begins', flush=True)\n"
        "time.sleep(600)\n"
    )
    program = subprocess.Popen(
        # A shell lets what it starts in the background ignore Ctrl-C, and so would the program.
        ["env", "--default-signal=INT", sys.executable, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert program.stdout.readline() == "begins\n"
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text()
    workers = [int(pid) for pid in children.split()]
    if ends == "Ctrl-C":
        program.send_signal(signal.SIGINT)
    else:
        os.kill(workers[1], signal.SIGKILL)
    output, _ = program.communicate(timeout=600)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    if ends == "Ctrl-C":
        assert "Traceback" not in output
        assert program.returncode == 128 + signal.SIGINT, output
    else:
        assert "worker 1 was killed by SIGKILL; the others were ended" in output
        assert program.returncode == 1, output
