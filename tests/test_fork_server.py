"""The processes in which workers run begin like new ones and never outlive the test."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.fork_server import FORK_SERVER, ForkServer, Task

pytestmark = pytest.mark.multiworker


@pytest.fixture
def bare() -> Iterator[ForkServer]:
    """One whose processes have imported nothing."""
    yield (server := ForkServer([]))
    server.close()


@pytest.fixture
def task(tmp_path: Path) -> Callable[..., Task]:
    def make(function: Callable[..., None], *arguments: str, new: bool = False) -> Task:
        environment = {**os.environ, "TF_GC_TEST": "seen"}
        name = f"{__name__}:{function.__name__}"
        return Task(name, arguments, environment, str(tmp_path / "log"), new)

    return make


def say(number: str) -> None:
    """Says what should differ between processes, and ends with an error."""
    said = f"{number} {os.environ['TF_GC_TEST']} {np.random.random()}\n"
    os.write(1, said.encode())  # at once: two processes write to one log
    sys.exit(int(number))


def say_devices(number: str) -> None:
    """Starts TensorFlow, which is imported, with that many devices; then the same."""
    assert "tensorflow" in sys.modules
    assert "tf_gc" not in sys.modules
    import tensorflow as tf

    tf.config.set_logical_device_configuration(  # an error once TensorFlow has started
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * int(number),
    )
    say(str(len(tf.config.list_logical_devices("CPU"))))


def say_as_new(number: str) -> None:
    """The same, in a process that has not imported TensorFlow."""
    assert "tensorflow" not in sys.modules
    say(number)


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


@pytest.mark.parametrize(
    ("function", "new"), [(say_devices, False), (say_as_new, True)], ids=["fork", "new"]
)
def test_each_process_has_its_own_state_log_and_end(
    task: Callable[..., Task], tmp_path: Path, function: Callable[[str], None], new: bool
) -> None:
    tasks = [task(function, str(n), new=new) for n in (1, 3)]
    assert FORK_SERVER.run(tasks) == ([1, 3], False)
    said = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    said = sorted(line for line in said if "seen" in line)
    assert [line[0] for line in said] == ["1", "3"]
    assert said[0][2] != said[1][2]  # NumPy's generator


def test_processes_that_are_late_are_killed_and_none_outlives_the_one_that_forks(
    bare: ForkServer, task: Callable[..., Task], tmp_path: Path
) -> None:
    path = tmp_path / "pid"
    assert bare.run([task(sleep, str(tmp_path / "late"))], limit=1) == ([-9], True)

    def kill() -> None:
        while not path.exists():
            time.sleep(0.1)
        bare.process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises((EOFError, ConnectionResetError)):
        bare.run([task(sleep, str(path))])
    killer.join()
    deadline = time.monotonic() + 600
    while runs(path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert bare.run([task(say, "2")]) == ([2], False)
