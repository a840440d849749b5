"""Starts processes that have TensorFlow imported already: forks of one that does nothing else.

The process that forks has one thread, has started nothing of TensorFlow's runtime and keeps nothing
of what its forks do, so that each of them begins and ends like a new one. Forks share the addresses
of what was imported and the seed of `hash()`; what may depend on them asks for `new` processes.
"""

import atexit
import contextlib
import ctypes
import dataclasses
import gc
import importlib
import multiprocessing.connection
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_PR_SET_PDEATHSIG = 1


@dataclasses.dataclass
class Task:
    """A process to start: a function "module:function", with strings as arguments."""

    function: str
    arguments: Sequence[str]
    environment: Mapping[str, str]  # all of it
    log: str  # the file for what it writes to stdout and stderr
    new: bool = False  # whether to start a new Python


class ForkServer:
    """Starts tasks in processes that have imported some modules, and that end with this one."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = list(modules)
        self.process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    def run(self, tasks: Sequence[Task], limit: float = 600) -> tuple[list[int], bool]:
        """Runs tasks side by side, and kills those that are not done within `limit` seconds.

        Returns their exit codes (minus the signal for one that was killed), and whether one was
        late.
        """
        if self.process is None:
            self._start()
        try:
            self._connection.send((tasks, limit))
            return self._connection.recv()
        except BaseException:  # such as the time-out of a test
            self.close()
            raise

    def output(
        self,
        function: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        status: int = 0,
        new: bool = False,
    ) -> str:
        """Runs one task, which ends with a status, and returns what it writes to stdout and stderr.

        Its environment is this process's by default.
        """
        environment = dict(os.environ if environment is None else environment)
        with tempfile.NamedTemporaryFile() as log:
            (code,), _ = self.run([Task(function, arguments, environment, log.name, new)])
            written = Path(log.name).read_text(errors="replace")
        assert code == status, f"{function} ended with {code}:\n{written}"
        return written

    def close(self) -> None:
        """Ends the process that forks, and with it its forks."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
            self._connection.close()

    def _start(self) -> None:
        self._connection, theirs = multiprocessing.connection.Pipe()
        command = f"from {__name__} import serve; serve({theirs.fileno()}, {self._modules})"
        # Threads do not survive a fork, and so OpenBLAS must not have any.
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", command],
            cwd=ROOT,
            env=environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()


def serve(descriptor: int, modules: Sequence[str]) -> None:
    """Runs tasks that come through a pipe, until it is closed."""
    for module in modules:
        importlib.import_module(module)
    # Collecting what was imported would copy all of it to each fork, at its end at the latest.
    gc.collect()
    gc.freeze()
    gc.disable()
    _end_with_parent()
    with multiprocessing.connection.Connection(descriptor) as connection:
        task = _serve(connection)
    if task is not None:
        _call(task.function, task.arguments)


def _serve(connection: Any) -> Task | None:
    """Returns the task in a fork, and None at the end of all tasks."""
    with contextlib.suppress(EOFError):
        while True:
            tasks, limit = connection.recv()
            assert len(os.listdir("/proc/self/task")) == 1, "more than one thread"
            forks = []
            for task in tasks:
                fork = os.fork()
                if fork == 0:
                    _become(task)
                    return task
                forks.append(fork)
            connection.send(_wait(forks, limit))
    return None


def _wait(forks: list[int], limit: float) -> tuple[list[int], bool]:
    deadline = time.monotonic() + limit
    late = False
    for fork in forks:
        descriptor = os.pidfd_open(fork)
        ended, _, _ = select.select([descriptor], [], [], max(0, deadline - time.monotonic()))
        late = late or not ended
        os.close(descriptor)
    for fork in forks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(fork, signal.SIGKILL)
    return [os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) for fork in forks], late


def _become(task: Task) -> None:
    """Makes this fork the process of a task."""
    _end_with_parent()
    with open(task.log, "a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.environ.clear()
    os.environ.update(task.environment)
    if task.new:
        command = f"from {__name__} import _call; _call({task.function!r}, {task.arguments!r})"
        os.execv(sys.executable, [sys.executable, "-c", command])
    gc.enable()
    import numpy as np

    np.random.seed()  # Python's own generator sees to it itself


def _call(function: str, arguments: Sequence[str]) -> None:
    module, name = function.split(":")
    getattr(importlib.import_module(module), name)(*arguments)


def _end_with_parent() -> None:
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL):
        raise OSError("cannot end with the parent process")


# Without tf_gc, so that a test can say what happens without it.
FORK_SERVER = ForkServer(["tensorflow", "keras"])
