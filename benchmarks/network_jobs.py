"""The coordinator's side of benchmarks/network.py: jobs of worker processes that await orders."""

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import network_links
import network_requests

from tf_gc.launch.tasks import Task, tasks_of

TAIL = 3000  # characters of a failed worker's log


def kill(processes: Sequence["subprocess.Popen[Any]"]) -> None:
    """Kills processes with sessions of their own, and those in them, and waits for them."""
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class JobError(RuntimeError):
    """A job cannot go on.

    Attributes:
      hung: whether its workers were too slow, and did not fail.
    """

    def __init__(self, message: str, hung: bool) -> None:
        super().__init__(message)
        self.hung = hung


class Job:
    """The workers of one mode, alive and idle between requests.

    Attributes:
      started: what each worker said of itself when it was ready.
      predicted_bytes: what the strategy of worker 0 says that the latest step has sent, if it does.
    """

    def __init__(
        self,
        program: Sequence[str],
        task: dict[str, Any],
        links: network_links.Links,
        limit: float,
    ) -> None:
        """Starts the workers and waits until all have made a step.

        Args:
          program: what runs a worker, a Python and a file.
          task: what the workers are to do (network_requests.py), given to the program as JSON.
          links: where the workers run.
          limit: seconds that any request may take.

        Raises:
          JobError: with the workers' logs, if one fails or takes too long.
        """
        self.mode = task["mode"]
        self.predicted_bytes: int | None = None
        self._limit = limit
        self._links = links
        self._answers: queue.Queue[tuple[int, str | None]] = queue.Queue()
        self._folder = tempfile.TemporaryDirectory(prefix="tf_gc_network_")
        self._workers: list[subprocess.Popen[str]] = []
        workers = range(len(links.addresses))
        try:
            addresses = links.with_ports()
            command = [*program, json.dumps(task)]
            for worker in tasks_of({"worker": len(addresses)}, addresses):
                self._start(worker, [*links.prefix(worker.index), *command])
            self.started = self._wait(workers)
        except BaseException:
            self.close()
            raise

    def _start(self, worker: Task, command: Sequence[str]) -> None:
        with open(self._log(worker.index), "wb") as log:
            process = subprocess.Popen(
                command,
                env={"TF_CPP_MIN_LOG_LEVEL": "1", **worker.environment()},
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._workers.append(process)
        threading.Thread(target=self._read, args=(worker.index, process), daemon=True).start()

    def _read(self, worker: int, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._answers.put((worker, line))
        self._answers.put((worker, None))

    def _log(self, worker: int) -> Path:
        return Path(self._folder.name, f"log{worker}")

    def run(self, steps: int) -> list[list[float]]:
        """Has all workers make `steps` steps, and returns each worker's seconds."""
        workers = range(len(self._workers))
        self._tell(workers, {"steps": steps})
        answers = self._wait(workers)
        self.predicted_bytes = answers[0]["predicted_bytes"]
        return [answer["seconds"] for answer in answers]

    def ask(self) -> dict[str, Any]:
        """Has all workers do what they do when they are asked; returns what worker 0 says."""
        workers = range(len(self._workers))
        self._tell(workers, {"ask": True})
        return self._wait(workers)[0]

    def spent(self) -> list[dict[str, float]]:
        """Returns what each worker has spent so far."""
        return [network_requests.spent(process.pid) for process in self._workers]

    def bits_per_second(self, size: int) -> float:
        """Returns the rate at which `size` bytes come from worker 0 to worker 1 over TCP."""
        self._tell([1], {"receive": size})
        (port,) = (answer["port"] for answer in self._wait([1]))
        self._tell([0], {"send": size, "to": [self._links.addresses[1], port]})
        _, received = self._wait([0, 1])
        return 8 * size / received["seconds"]

    def close(self) -> None:
        """Kills the workers."""
        kill(self._workers)
        self._folder.cleanup()

    def _tell(self, workers: Sequence[int], request: dict[str, Any]) -> None:
        for worker in workers:
            stream = self._workers[worker].stdin
            assert stream is not None
            try:
                stream.write(json.dumps(request) + "\n")
                stream.flush()
            except BrokenPipeError:
                raise self._ended(worker) from None

    def _wait(self, workers: Sequence[int]) -> list[dict[str, Any]]:
        """Returns the next answer of each of `workers`."""
        deadline = time.monotonic() + self._limit
        answers: dict[int, dict[str, Any]] = {}
        while len(answers) < len(workers):
            try:
                worker, line = self._answers.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                late = [worker for worker in workers if worker not in answers]
                what = f"no answer of workers {late} in {self._limit} s"
                raise self._failure(what, hung=True) from None
            if line is None:
                raise self._ended(worker)
            answers[worker] = json.loads(line)
        return [answers[worker] for worker in workers]

    def _ended(self, worker: int) -> JobError:
        time.sleep(1)  # the others may notice, and end too
        hung = network_requests.HUNG in [process.poll() for process in self._workers]
        what = "a step has taken too long" if hung else f"worker {worker} has ended"
        return self._failure(what, hung)

    def _failure(self, what: str, hung: bool) -> JobError:
        logs = [
            f"==== log of worker {worker}, its end\n"
            + self._log(worker).read_text(errors="replace")[-TAIL:]
            for worker in range(len(self._workers))
        ]
        return JobError(f"{self.mode}: {what}\n" + "\n".join(logs), hung)


class Jobs:
    """A job for each mode. One that failed is started again when it is next wanted.

    Attributes:
      started: by mode, what each worker said when the mode was first ready.
    """

    def __init__(self, start: Callable[[str], Job]) -> None:
        self.started: dict[str, list[dict[str, Any]]] = {}
        self._start = start
        self._running: dict[str, Job] = {}

    def __enter__(self) -> "Jobs":
        return self

    def __exit__(self, *_: object) -> None:
        for mode in list(self._running):
            self.end(mode)

    def get(self, mode: str) -> Job:
        """Returns the job of a mode, after its start if need be.

        Raises:
          JobError: if it cannot start.
        """
        if mode not in self._running:
            self._running[mode] = self._start(mode)
            self.started.setdefault(mode, self._running[mode].started)
        return self._running[mode]

    def end(self, mode: str) -> None:
        """Kills the workers of a mode, if there are any."""
        if mode in self._running:
            self._running.pop(mode).close()
