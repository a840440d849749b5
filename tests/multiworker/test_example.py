"""The example: its launcher, and the summary that it shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import programs
from tests.cases import matrix

pytestmark = [pytest.mark.multiworker, matrix]

EXAMPLES = programs.ROOT / "examples"
# A shell lets what it starts in the background ignore Ctrl-C, and so would the example.
PYTHON = ["env", "--default-signal=INT", sys.executable]


def number(name: str, output: str) -> float:
    found = re.search(rf"^{name} +(\d+\.?\d*)", output, re.MULTILINE)
    assert found, output
    return float(found[1])


def test_the_example_trains_and_sums_up() -> None:
    output = programs.output_of(EXAMPLES / "multi_worker.py", "--workers=2", "--epochs=2", new=True)
    assert output.count("Epoch 2/2") == 1, "not one progress bar"
    ratio = re.search(r"bytes per step .* \((\d+\.\d) x\)", output)
    assert ratio, output
    assert float(ratio[1]) > 5
    assert number("test accuracy", output) > 0.8
    assert "seconds per step" in output


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("ends", ["a worker dies", "Ctrl-C"])
def test_no_worker_outlives_the_example(ends: str) -> None:
    example = subprocess.Popen(
        [*PYTHON, str(EXAMPLES / "multi_worker.py"), "--workers=2", "--epochs=1000"],
        env={**os.environ, "PYTHONPATH": str(programs.ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert any("Epoch 2/" in line for line in example.stdout), "it ended too soon"
    children = Path(f"/proc/{example.pid}/task/{example.pid}/children").read_text()
    workers = [int(pid) for pid in children.split()]
    if ends == "Ctrl-C":
        example.send_signal(signal.SIGINT)
    else:
        os.kill(workers[1], signal.SIGKILL)
    output, _ = example.communicate(timeout=600)
    assert not any(map(is_running, workers))
    if ends == "Ctrl-C":
        assert "Traceback" not in output
        assert example.returncode == 128 + signal.SIGINT, output
    else:
        assert example.returncode == 1, output
        assert "worker 1 was killed by SIGKILL" in output


def test_the_example_with_parameter_servers_trains() -> None:
    program = EXAMPLES / "parameter_server.py"
    output = programs.output_of(program, "--steps=400", "--workers=2", "--servers=2", new=True)
    assert "push, packed" in output
    assert "pull='delta': a worker pushes" in output
    assert number("steps", output) == 400
    assert number("test accuracy", output) > 0.85
