"""The processes in which workers run begin like new ones and never outlive the test."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.fork_server import FORK_SERVER, ForkServer, Task

pytestmark = pytest.mark.multiworker


def task(folder: Path, function: Callable[..., None], *arguments: str, new: bool = False) -> Task:
    environment = {**os.environ, "TF_GC_TEST": "seen"}
    return Task(f"{__name__}:{function.__name__}", arguments, environment, str(folder / "log"), new)


def say(number: str, imported: str) -> None:
    """Says what should differ between processes, and ends with an error."""
    assert ("tensorflow" in sys.modules) == (imported == "imported")
    assert "tf_gc" not in sys.modules
    if imported:
        import tensorflow as tf

        tf.config.set_logical_device_configuration(  # an error once TensorFlow has started
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * int(number),
        )
        assert len(tf.config.list_logical_devices("CPU")) == int(number)
    said = f"{number} {os.environ['TF_GC_TEST']} {np.random.random()}\n"
    os.write(1, said.encode())  # at once: two processes write to one log
    sys.exit(int(number))


def sleep(path: str) -> None:
    partial = Path(f"{path}.partial")
    partial.write_text(str(os.getpid()))
    partial.rename(path)
    time.sleep(600)


def runs(process: str) -> bool:
    try:  # one that has ended, and nobody has waited for, has no command
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("new", [False, True])
def test_each_process_has_its_own_state_log_and_end(tmp_path: Path, new: bool) -> None:
    tasks = [task(tmp_path, say, n, "" if new else "imported", new=new) for n in "13"]
    assert FORK_SERVER.run(tasks) == ([1, 3], False)
    said = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    said = sorted(line for line in said if "seen" in line)
    assert [line[0] for line in said] == ["1", "3"]
    assert said[0][2] != said[1][2]  # NumPy's generator


def test_processes_that_are_late_are_killed_and_none_outlives_the_one_that_forks(
    tmp_path: Path,
) -> None:
    bare, path = ForkServer([]), tmp_path / "pid"
    assert bare.run([task(tmp_path, sleep, str(tmp_path / "late"))], limit=1) == ([-9], True)

    def kill() -> None:
        while not path.exists():
            time.sleep(0.1)
        bare.process.kill()

    threading.Thread(target=kill).start()
    with pytest.raises((EOFError, ConnectionResetError)):
        bare.run([task(tmp_path, sleep, str(path))])
    deadline = time.monotonic() + 600
    while runs(path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert bare.run([task(tmp_path, say, "2", "")]) == ([2], False)
    bare.close()
