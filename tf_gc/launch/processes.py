"""The processes of a launcher's tasks: watched, started again, and ended together."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tf_gc.launch.tasks import Task, gpus_of

# Seconds. A process that fails twice in the same way before this age may never get further.
_EARLY = 60.0
# The wait before a start doubles while processes do not live as long as this, up to the longest.
_SHORT, _LONGEST_WAIT = 10.0, 30.0
_PAUSE = 0.1  # seconds between looks
_TAIL = 1 << 16  # bytes at the end of a log, in which an error is looked for
_WIDTH = 120  # characters of an error
_LINES = 60  # of a log, shown when its task has failed: from the error on, or the last ones
_TRACEBACK = "Traceback (most recent call last)"
_ERROR = re.compile(r"^(?:[\w.]*(?:Error|Exception|Interrupt|Exit)\b|.*can't open file).*", re.M)
# TensorFlow's errors may come from the end of another task, and need not come again.
_OF_OTHERS = "errors_impl."
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl


def start(
    command: Sequence[str], environment: Mapping[str, str], **options: Any
) -> "subprocess.Popen[Any]":
    """Starts a process that does not outlive this one; `options` are of `subprocess.Popen`."""
    return subprocess.Popen(
        command,
        env=environment,
        start_new_session=True,  # Ctrl-C is for the launcher
        preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
        **options,
    )


def say(text: str) -> None:
    """Writes a line of the launcher."""
    print(f"{time.strftime('%H:%M:%S')} tf_gc.launch: {text}", file=sys.stderr, flush=True)


class _Run:
    """A task, its process, and the process that follows. The first task writes to the terminal."""

    def __init__(self, task: Task, log: Path, first: bool, restarts: int) -> None:
        self.task = task
        self.process: subprocess.Popen[bytes] | None = None
        self.due = 0.0  # when it starts, if there is no process
        log.touch()
        self._log, self._first, self._shown = log, first, log.stat().st_size
        self._left = restarts
        self._short, self._failure = 0, ""  # lives in a row; how the last process failed early

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._began = time.monotonic()
        with open(self._log, "ab") as log:
            self._begin = log.tell()
            out = None if self._first else log
            options = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": log}
            self.process = start(command, environment, **options)

    @property
    def status(self) -> int | None:
        """The return code of the process, `None` before it has ended."""
        return None if self.process is None else self.process.poll()

    def show(self) -> None:
        """Copies to the terminal what the first task has lately written to stderr."""
        if self._first:
            text = self._read(self._shown)
            self._shown += len(text)
            sys.stderr.buffer.write(text)
            sys.stderr.flush()

    def start_again(self, status: int) -> bool:
        """Lets another process follow one that has failed, if there is hope; says what it does."""
        begin = max(self._begin, self._log.stat().st_size - _TAIL)
        tail = self._read(begin).decode(errors="replace")
        if status < 0:
            failure = f"was killed by {signal.Signals(-status).name}"
        else:
            errors = [f" ({error[:_WIDTH]})" for error in _ERROR.findall(tail)]
            failure = f"exited with {status}" + (errors or [""])[-1]
        lived = time.monotonic() - self._began
        again = lived < _EARLY and failure == self._failure
        may_come_again = lived < _EARLY and status > 0 and _OF_OTHERS not in failure
        self._failure = failure if may_come_again else ""
        self._short = self._short + 1 if lived < _SHORT else 0
        text = f"{self.task} {failure} after {lived:.1f} s"
        if again or not self._left:
            say(text + ", as it did before: it is not started again" * again)
            if not self._first:
                error, lines = tail.rfind(_TRACEBACK), tail.splitlines()[-_LINES:]
                if error >= 0:  # TensorFlow goes on writing after it
                    lines = tail[error:].splitlines()[:_LINES]
                print(*(f"{self.task}: {line}" for line in lines), sep="\n", file=sys.stderr)
            return False
        self._left -= 1
        wait = min(2.0 ** max(0, self._short - 1), _LONGEST_WAIT)
        say(f"{text}: starts again in {wait:g} s, {self._left} restarts left")
        self.start_later(wait)
        return True

    def start_later(self, seconds: float = 0.0) -> None:
        self.process, self.due = None, time.monotonic() + seconds

    def kill(self, number: int) -> None:
        """Sends a signal to the process and those that it has started."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def _read(self, offset: int) -> bytes:
        with open(self._log, "rb") as log:
            log.seek(offset)
            return log.read()


class Processes:
    """Runs a command as each of some tasks, until the job has ended.

    It has if all workers have ended well, or the chief of a job with parameter servers. If a task
    fails for good, the others are ended.
    """

    def __init__(
        self, here: Sequence[Task], command: Sequence[str], logs: Path, restarts: int, grace: float
    ) -> None:
        """`grace` are the seconds from SIGTERM to SIGKILL."""
        self._command, self._grace = command, grace
        self._runs = [
            _Run(task, logs / f"{task.type}-{task.index}.log", i == 0, restarts)
            for i, task in enumerate(here)
        ]
        self._gpus = gpus_of(here)
        main = "chief" if "chief" in here[0].cluster else "worker"
        self._main = [run for run in self._runs if run.task.type == main]
        self._signals: list[int] = []  # that the launcher has got

    def run(self) -> int:
        """Returns the exit status: 0, of the task that failed first, or 128 and a signal."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: self._signals.append(number))
        try:
            return self._watch()
        finally:
            self._end()

    def _watch(self) -> int:
        while not self._signals:
            for run, gpus in zip(self._runs, self._gpus, strict=True):
                if run.process is None and run.due <= time.monotonic():
                    extra = {"PYTHONUNBUFFERED": "1", **gpus}
                    run.start(self._command, {**run.task.environment(), **extra})
            time.sleep(_PAUSE)
            failed = [(run.status, run) for run in self._runs if run.status]
            self._runs[0].show()
            # First the one that was killed, not one that noticed.
            for status, run in sorted(failed, key=lambda each: each[0]):
                if not run.start_again(status):
                    return 128 - status if status < 0 else status
                for other in self._main:
                    if other.status == 0:  # all have to meet at the start
                        other.start_later()
            if all(run.status == 0 for run in self._main):
                return 0
        say(f"{signal.Signals(self._signals[0]).name}: ends all within {self._grace:g} s")
        return 128 + self._signals[0]

    def _end(self) -> None:
        """Lets all end, and kills them after the grace or at another signal."""
        asked, deadline = min(1, len(self._signals)), time.monotonic() + self._grace
        for run in self._runs:
            run.kill(signal.SIGTERM)
        while any(run.process and run.status is None for run in self._runs):
            if time.monotonic() > deadline or len(self._signals) > asked:
                for run in self._runs:
                    run.kill(signal.SIGKILL)
            time.sleep(_PAUSE)
            self._runs[0].show()
        self._runs[0].show()
