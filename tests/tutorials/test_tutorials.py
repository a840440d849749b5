"""The programs of TensorFlow's and Ray's tutorials train when one line names our strategy."""

import os
import re
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.cases import matrix
from tests.programs import ROOT

pytestmark = [pytest.mark.multiworker, matrix]

# `make test-all` makes it: beside other tests, Ray's packages would start a thread in all forks.
RAY_PYTHON = Path(sys.prefix, "ray", "bin", "python")
SENT = r"(?:sends|pushes) (?:at most )?([\d,]+) bytes a step instead of ([\d,]+)"


def with_our_strategy(program: str, folder: Path, last_line: str = "") -> str:
    """Writes the program, in which one line names our strategy, into the folder."""
    text = Path(__file__).with_name(program).read_text()
    text, lines = re.subn(r"\btf\.distribute\.(\w+Strategy)\(", r"tf_gc.Compressed\1(", text)
    assert lines == 1
    text = text.replace("\nimport tensorflow as tf\n", "\nimport tensorflow as tf\nimport tf_gc\n")
    path = folder / program
    path.write_text(f"{text}{last_line}\n")
    return str(path)


def output_of(*command: str, **variables: str) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def launch(program: str, folder: Path, *options: str) -> str:
    """Runs a program by the launcher; returns what all tasks write."""
    path, logs = with_our_strategy(program, folder, "print(strategy.traffic)"), folder / "logs"
    launcher = [sys.executable, "-m", "tf_gc.launch", *options, f"--logs={logs}"]
    output = output_of(*launcher, path, str(folder / "files"))
    return "".join([output, *(log.read_text() for log in logs.iterdir())])


def check(output: str, tasks: int) -> None:
    """The loss falls, all tasks that print weights have the same, and the gradients are small."""
    losses = [float(loss) for loss in re.findall(r"\bloss:? ([\d.]+)", output)]
    assert losses[-1] < 0.7 * losses[0], output
    weights = re.findall(r"\bweights (\[.+\])", output)
    assert len(weights) == tasks, output
    assert len(set(weights)) == 1
    sent: list[Any] = re.findall(SENT, output)
    compressed, stock = (int(number.replace(",", "")) for number in sent[-1])
    assert 0 < compressed < stock / 2


def test_fit_on_workers(tmp_path: Path) -> None:
    check(launch("multi_worker_fit.py", tmp_path, "--workers=2"), tasks=2)
    # Nothing of the other worker, and no backup after a good end.
    assert sorted(os.listdir(tmp_path / "files")) == ["checkpoints", "digits.keras"]


def test_a_coordinator_of_parameter_servers(tmp_path: Path) -> None:
    check(launch("parameter_server.py", tmp_path, "--workers=2", "--servers=1"), tasks=1)


def test_fit_on_workers_of_ray(tmp_path: Path) -> None:
    program = with_our_strategy("ray_train.py", tmp_path)
    settings = {"USAGE_STATS_ENABLED": "0", "AUTH_TOKEN": secrets.token_hex(), "DEDUP_LOGS": "0"}
    with tempfile.TemporaryDirectory() as folder:  # the paths of sockets have to be short
        variables = {f"RAY_{name}": text for name, text in {**settings, "TMPDIR": folder}.items()}
        output = output_of(str(RAY_PYTHON), program, str(tmp_path / "results"), **variables)
    lines = dict.fromkeys(output.splitlines())  # Ray shows twice what a worker prints
    check("\n".join(lines), tasks=2)
