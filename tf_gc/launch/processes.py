"""The processes of a launcher's tasks: watched, started again, and ended together."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tf_gc.launch import keeper
from tf_gc.launch.tasks import MESSAGES, MET, Task, gpus_of

# Seconds. A process that fails twice in the same way before this age may never get further.
_EARLY = 60.0
# The wait before a start doubles while processes do not live as long as this, up to the longest.
_SHORT, _LONGEST_WAIT = 10.0, 30.0
_PAUSE = 0.05  # seconds between looks
_TAIL = 1 << 16  # bytes that a task wrote last, in which an error is looked for; those of a pipe
_WIDTH = 200  # characters of an error
_LINES = 60  # of a log, shown when its task has failed: from the error on, or the last ones
_TRACEBACK = "Traceback (most recent call last)"
_ERROR = re.compile(r"^(?:[\w.]*(?:Error|Exception|Interrupt|Exit)\b|.*can't open file).*", re.M)
# TensorFlow's errors begin with where, and have the cause at the margin in a later paragraph.
_NO_CAUSE, _WHERE = "Graph execution error:", re.compile(r"$|\s|Detected at |Stack tr|<stack ")
# It says that for each try of a worker that has started again before the chief has ended.
_NOISE = re.compile(rb"^.*unexpectedly tried to connect while it is already in error.*\n", re.M)
# They may come from the end of another task, and need not come again.
_OF_OTHERS = "errors_impl."
_REMOVE = (
    "import sys\nfrom tf_gc.keras.backup_files import BackupFiles\n"
    "for folder in sys.argv[1:]:\n    BackupFiles(folder).remove()\n"
)
# What people and schedulers send to end a job, or before they do.
_ENDING = [getattr(signal, f"SIG{name}") for name in ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2")]


def write(text: bytes) -> None:
    """Writes to stderr; if that is closed, or its terminal or disk is gone, to nobody from now."""
    try:
        with open(2, "wb", closefd=False) as stderr:
            stderr.write(text)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def say(text: str) -> None:
    """Writes a line of the launcher."""
    write(f"{time.strftime('%H:%M:%S')} tf_gc.launch: {text}\n".encode(errors="replace"))


def find_error(text: str) -> str:
    """Returns the last error in what a process has written, in a line; empty if there is none."""
    if not (found := [*_ERROR.finditer(text)]):
        return ""
    error = found[-1].group()
    if error.endswith(_NO_CAUSE):
        lines = text[found[-1].end() :].splitlines()
        error += next((f" {line}" for line in lines if not _WHERE.match(line)), "")
    error = re.sub(r"\{\{.*?\}\} ", "", error)  # the name of an operation
    return textwrap.shorten(error, _WIDTH, placeholder=" ...")


class _Run:
    """A task, its process, and the process that follows. The first task writes to the terminal."""

    def __init__(self, task: Task, log: Path, first: bool, restarts: int) -> None:
        self.task = task
        self.process: subprocess.Popen[bytes] | None = None
        self.due = 0.0  # when it starts, if there is no process
        self.is_left = False  # whether another one has failed that this one has met
        self._log, self._log_fails = log.open("ab", buffering=0), False
        self._messages = log.with_suffix(".messages")
        self._first, self._left, self._restarts = first, restarts, restarts
        self._short, self._failure = 0, ""  # lives in a row; how the last process failed early

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._began, self._tail, self.is_left = time.monotonic(), b"", False
        self._messages.unlink(missing_ok=True)
        messages = {MESSAGES: str(self._messages.absolute())} if self._restarts else {}
        self.process = keeper.start(command, {**environment, **messages}, to_terminal=self._first)
        self._pipe = self.process.stdout or self.process.stderr
        assert self._pipe is not None
        os.set_blocking(self._pipe.fileno(), False)

    @property
    def status(self) -> int | None:
        """The return code of the process, `None` before it has ended."""
        return None if self.process is None else self.process.poll()

    @property
    def messages(self) -> list[str]:
        """What the process has told the launcher."""
        return self._messages.read_text().splitlines() if self._messages.exists() else []

    def read(self) -> None:
        """Brings what the process has written to its log, and if it is the first to the terminal.

        Otherwise a full disk would be an error of the process.
        """
        if self.process is None or not (text := self._pipe.read(_TAIL)):  # type: ignore[union-attr]
            return
        self._tail = (self._tail + text)[-_TAIL:]
        if self._first:
            write(_NOISE.sub(b"", text))
        try:
            self._log.write(text)
        except OSError as error:
            if not self._log_fails:
                say(f"the output of {self.task} is lost: {self._log.name}: {error.strerror}")
            self._log_fails = True

    def start_again(self, status: int) -> bool:
        """Lets another process follow one that has failed, if there is hope; says what it does."""
        self.read()
        tail = self._tail.decode(errors="replace")
        if status < 0:
            failure = f"was killed by {name_of(-status)}"
        else:
            failure = f"exited with {status}" + (f" ({e})" if (e := find_error(tail)) else "")
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
                write("".join(f"{self.task}: {line}\n" for line in lines).encode())
            return False
        self._left -= 1
        wait = min(2.0 ** (self._short - 1), _LONGEST_WAIT) if self._short else 0.0
        say(f"{text}: starts again in {wait:g} s, {self._left} restarts left")
        self.start_later(wait)
        return True

    def start_later(self, seconds: float = 0.0) -> None:
        self.process, self.due = None, time.monotonic() + seconds


class Processes:
    """Runs a command as each of some tasks, until the job has ended.

    It has if all workers have ended well, or the chief of a job with parameter servers, and the
    evaluator if it does within the grace. If a task fails for good, the others are ended.
    """

    def __init__(
        self, here: Sequence[Task], command: Sequence[str], logs: Path, restarts: int, grace: float
    ) -> None:
        """`grace` are the seconds from SIGTERM to SIGKILL. OSError if `logs` takes no files."""
        self._command, self._grace = command, grace
        logs.mkdir(parents=True, exist_ok=True)
        self._runs = [
            _Run(task, logs / f"{task.type}-{task.index}.log", i == 0, restarts)
            for i, task in enumerate(here)
        ]
        self._extra = [{"PYTHONUNBUFFERED": "1", **gpus} for gpus in gpus_of(here)]
        main = "chief" if "chief" in here[0].cluster else "worker"
        self._main = [run for run in self._runs if run.task.type == main]
        self._signals: list[int] = []  # that the launcher has got

    def run(self) -> int:
        """Returns the exit status: 0, of the task that failed first, or 128 and a signal."""
        for number in _ENDING:
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGINT:  # by nohup
                signal.signal(number, lambda number, _: self._signals.append(number))
        try:
            status = self._watch()
        finally:
            self._end()
        folders = {text for run in self._main for text in run.messages if text != MET}
        if status == 0 and folders:
            quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
            command = [sys.executable, "-c", _REMOVE, *folders]
            subprocess.run(command, env={**os.environ, **quiet}, check=False)
        return status

    def _watch(self) -> int:
        evaluators = [run for run in self._runs if run.task.type == "evaluator"]
        patience = 0.0  # until when an evaluator may run, once the others have ended
        while not self._signals:
            for run, extra in zip(self._runs, self._extra, strict=True):
                if run.process is None and run.due <= time.monotonic():
                    run.start(self._command, {**run.task.environment(), **extra})
            self._pause()
            failed = [(run.status, run) for run in self._runs if run.status]
            # First the one that was killed, not one that noticed.
            for status, run in sorted(failed, key=lambda each: each[0]):
                if not run.start_again(status):
                    return 128 - status if status < 0 else status
            for other in self._main if any(run not in evaluators for _, run in failed) else []:
                other.is_left = other.status == 0 or MET in other.messages
            for run in self._main:
                if run.status == 0 and run.is_left:  # those that started again wait for it
                    run.start_later()
            if all(run.status == 0 for run in self._main):
                if all(run.status == 0 for run in evaluators) or 0 < patience < time.monotonic():
                    return 0
                if not patience:
                    patience = time.monotonic() + self._grace
                    say(f"training has ended: waits for the evaluator, up to {self._grace:g} s")
        say(f"{name_of(self._signals[0])}: ends all within {self._grace:g} s")
        return 128 + self._signals[0]

    def _pause(self) -> None:
        time.sleep(_PAUSE)
        for run in self._runs:
            run.read()

    def _end(self) -> None:
        """Lets all end, and kills them after the grace or at another signal."""
        asked, deadline = min(1, len(self._signals)), time.monotonic() + self._grace
        message: int = keeper.END
        while alive := [r.process for r in self._runs if r.process and r.status is None]:
            for process in alive:
                process.send_signal(message)
            late = time.monotonic() > deadline or len(self._signals) > asked
            message = keeper.KILL if late else 0  # that is no signal
            self._pause()
        self._pause()


def name_of(number: int) -> str:
    """Returns the name of a signal; those for real time have none."""
    return next((each.name for each in signal.Signals if each == number), f"signal {number}")
