"""The coordinator's side of benchmarks/network.py: jobs of worker processes that await orders."""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import network_links
from local_jobs import local_workers

WORKER = Path(__file__).with_name("network_worker.py")
TAIL = 3000  # characters of a failed worker's log


class Job:
    """The workers of one mode, alive and idle between requests.

    Attributes:
      started: what each worker said of itself when it was ready.
      predicted_bytes: what the strategy of worker 0 says that the latest step has sent, if it does.
    """

    def __init__(
        self,
        task: dict[str, Any],
        links: network_links.Links | network_links.Loopback,
        limit: float,
    ) -> None:
        """Starts the workers and waits until all have made a step.

        Args:
          task: mode, compression_params, model, batch_size and threads.
          links: where the workers run.
          limit: seconds that any request may take.

        Raises:
          RuntimeError: with the workers' logs, if one fails or takes too long.
        """
        self.mode = task["mode"]
        self.predicted_bytes: int | None = None
        self._limit = limit
        self._links = links
        self._answers: queue.Queue[tuple[int, str | None]] = queue.Queue()
        self._folder = tempfile.TemporaryDirectory(prefix="tf_gc_network_")
        self._workers = local_workers.LocalWorkers()
        workers = range(len(links.addresses))
        try:
            addresses = [
                f"{address}:{port}"
                for address, port in zip(links.addresses, links.ports(len(workers)), strict=True)
            ]
            for worker, config in enumerate(local_workers.tf_configs(addresses)):
                self._start(worker, task, config)
            self.started = self._wait(workers)
        except BaseException:
            self.close()
            raise

    def _start(self, worker: int, task: dict[str, Any], config: str) -> None:
        with open(self._log(worker), "wb") as log:
            process = self._workers.start(
                [*self._links.prefix(worker), sys.executable, str(WORKER), json.dumps(task)],
                config,
                {"TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1")},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        threading.Thread(target=self._read, args=(worker, process), daemon=True).start()

    def _read(self, worker: int, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._answers.put((worker, line))
        self._answers.put((worker, None))

    def _log(self, worker: int) -> Path:
        return Path(self._folder.name, f"log{worker}")

    def run(self, steps: int) -> list[list[float]]:
        """Has all workers make `steps` steps, and returns each worker's seconds."""
        workers = range(len(self._workers.processes))
        self._tell(workers, {"steps": steps})
        answers = self._wait(workers)
        self.predicted_bytes = answers[0]["predicted_bytes"]
        return [answer["seconds"] for answer in answers]

    def bits_per_second(self, size: int) -> float:
        """Returns the rate at which `size` bytes come from worker 0 to worker 1 over TCP."""
        self._tell([1], {"receive": size})
        (port,) = (answer["port"] for answer in self._wait([1]))
        self._tell([0], {"send": size, "to": [self._links.addresses[1], port]})
        _, received = self._wait([0, 1])
        return 8 * size / received["seconds"]

    def close(self) -> None:
        """Kills the workers."""
        self._workers.stop()
        self._folder.cleanup()

    def _tell(self, workers: Sequence[int], request: dict[str, Any]) -> None:
        for worker in workers:
            stream = self._workers.processes[worker].stdin
            assert stream is not None
            try:
                stream.write(json.dumps(request) + "\n")
                stream.flush()
            except BrokenPipeError:
                raise self._failure(f"worker {worker} has ended") from None

    def _wait(self, workers: Sequence[int]) -> list[dict[str, Any]]:
        """Returns the next answer of each of `workers`."""
        deadline = time.monotonic() + self._limit
        answers: dict[int, dict[str, Any]] = {}
        while len(answers) < len(workers):
            try:
                worker, line = self._answers.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                late = [worker for worker in workers if worker not in answers]
                raise self._failure(f"no answer of workers {late} in {self._limit} s") from None
            if line is None:
                raise self._failure(f"worker {worker} has ended")
            answers[worker] = json.loads(line)
        return [answers[worker] for worker in workers]

    def _failure(self, what: str) -> RuntimeError:
        logs = [
            f"==== log of worker {worker}, its end\n{self._log(worker).read_text()[-TAIL:]}"
            for worker in range(len(self._workers.processes))
        ]
        return RuntimeError(f"{self.mode}: {what}\n" + "\n".join(logs))


def available_bytes() -> int:
    """Returns the memory that new processes can have."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("/proc/meminfo does not say how much memory is available")
