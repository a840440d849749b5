"""The example: its launcher, and what it shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import programs
from tests.cases import matrix

pytestmark = pytest.mark.multiworker

ROOT = Path(__file__).resolve().parents[2]
# A shell lets what it starts in the background ignore Ctrl-C, and so would the example.
PYTHON = ["env", "--default-signal=INT", sys.executable]
COMMAND = [*PYTHON, str(ROOT / "examples" / "multi_worker.py"), "--workers", "2"]


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    return subprocess.Popen(
        [*COMMAND, *arguments],
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def workers_of(launcher: subprocess.Popen[str]) -> list[int]:
    """The launcher's children, by number of the worker."""
    path = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    deadline = time.monotonic() + 600
    while len(found := path.read_text().split()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return [int(pid) for pid in found]


def wait_for(text: str, example: subprocess.Popen[str]) -> None:
    assert example.stdout is not None
    assert any(text in line for line in example.stdout), f"ended before {text!r}"


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@matrix
def test_the_example_trains_and_sums_up() -> None:
    output, _ = (example := start("--epochs", "2")).communicate(timeout=6000)
    assert example.returncode == 0, output
    assert output.count("Epoch 2/2") == 1, "not one progress bar"
    accuracy = re.search(r"test accuracy +(0\.\d+)", output)
    ratio = re.search(r"bytes per step .* \((\d+\.\d) x\)", output)
    assert accuracy, output
    assert ratio, output
    assert float(accuracy[1]) > 0.8
    assert float(ratio[1]) > 5
    assert "seconds per step" in output


@matrix
def test_a_worker_that_dies_ends_the_example() -> None:
    example = start("--epochs", "1000")
    workers = workers_of(example)
    wait_for("Epoch 2/", example)
    os.kill(workers[1], signal.SIGKILL)
    output, _ = example.communicate(timeout=600)
    assert example.returncode == 1, output
    assert "worker 1 was killed by SIGKILL" in output
    assert not any(map(is_running, workers))


@matrix
def test_ctrl_c_ends_all_workers() -> None:
    example = start("--epochs", "1000")
    workers = workers_of(example)
    wait_for("Epoch 2/", example)
    example.send_signal(signal.SIGINT)
    output, _ = example.communicate(timeout=600)
    assert example.returncode == 128 + signal.SIGINT, output
    assert not any(map(is_running, workers))
    assert "Traceback" not in output


@matrix
def test_the_example_with_parameter_servers_trains() -> None:
    program = ROOT / "examples" / "parameter_server.py"
    output = programs.output_of(program, "--steps=400", "--workers=2", "--servers=2", new=True)
    assert "push, packed" in output
    assert "pull='delta': a worker pushes" in output
    assert re.search(r"^steps +400$", output, re.MULTILINE), output
    accuracy = re.search(r"^test accuracy +(0\.\d+)$", output, re.MULTILINE)
    assert accuracy, output
    assert float(accuracy[1]) > 0.85
