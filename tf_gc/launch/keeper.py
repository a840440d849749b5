"""Keepers: processes that end with all that their task has started, and with the launcher.

A task may leave processes behind that hold its port, or the launcher may be killed and can end
nothing itself. So each task is the child of a keeper, to which the kernel gives those that have
lost their parents, in whatever session they are. It uses next to no memory: it is a fork.
"""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# What the launcher sends to a keeper. The task's group gets SIGTERM; the task is killed.
END, KILL = signal.SIGRTMIN, signal.SIGRTMIN + 1
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_prctl = ctypes.CDLL(None).prctl
_PAUSE, _PATIENCE = 0.01, 10.0  # seconds: between looks, and for processes that cannot be killed


def start(
    command: Sequence[str], environment: Mapping[str, str], to_terminal: bool
) -> "subprocess.Popen[bytes]":
    """Starts a task and its keeper, which is the process returned and ends as the task does.

    It has a pipe with what the task writes to stderr, and, if not `to_terminal`, to stdout.
    """
    launcher = os.getpid()
    return subprocess.Popen(
        command,
        bufsize=0,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=None if to_terminal else subprocess.PIPE,
        stderr=subprocess.PIPE if to_terminal else subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is for the launcher
        preexec_fn=lambda: _fork(launcher),
    )


def _fork(launcher: int) -> None:
    """Returns in the task that is to be; its parent becomes the keeper."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if (task := os.fork()) == 0:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    status = 1
    try:
        status = _keep(task, launcher)
        if status < 0:  # to end in the same way, but for the core
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if -status != signal.SIGKILL:
                signal.signal(-status, signal.SIG_DFL)
            os.kill(os.getpid(), -status)
    finally:
        os._exit(abs(status))


def _keep(task: int, launcher: int) -> int:
    """Waits for the end of the task, kills what is left, and returns the status of the task."""

    def obey(message: int, _: Any) -> None:
        with contextlib.suppress(ProcessLookupError):
            if message == END:
                os.killpg(task, signal.SIGTERM)
            else:
                os.kill(task, signal.SIGKILL)

    for message in (END, KILL):
        signal.signal(message, obey)
    _prctl(_PR_SET_PDEATHSIG, KILL)
    if os.getppid() != launcher:  # it has just ended
        os.kill(task, signal.SIGKILL)
    os.closerange(3, 1 << 16)  # then `subprocess` believes that the command runs
    while (ended := os.wait())[0] != task:
        pass
    for message in (END, KILL):
        signal.signal(message, signal.SIG_IGN)
    deadline = time.monotonic() + _PATIENCE
    with contextlib.suppress(ChildProcessError):  # then there are none
        while time.monotonic() < deadline:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            for child in _children():
                with contextlib.suppress(OSError):
                    os.kill(child, signal.SIGKILL)
            time.sleep(_PAUSE)
    return os.waitstatus_to_exitcode(ended[1])


def _children() -> list[int]:
    me = str(os.getpid())
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            if path.read_bytes().rpartition(b")")[2].split()[1].decode() == me:
                found.append(int(path.parent.name))
    return found
