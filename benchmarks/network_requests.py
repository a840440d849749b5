"""The worker's side of benchmarks/network.py: obeys the lines it reads, a JSON object each.

    {"steps": n}                         -> {"seconds": [n numbers], "predicted_bytes": number}
    {"ask": true}                        -> what the worker's program has to tell then
    {"receive": bytes}                   -> {"port": number}, then {"seconds": s}
    {"send": bytes, "to": [host, port]}  -> {}

A worker first says what it is, unasked. It ends when its input does, even in the middle of a step,
and exits with `HUNG` if a step takes longer than the task allows. This module needs only Python's
standard library: workers of other frameworks use it too.
"""

import faulthandler
import json
import os
import queue
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

HUNG = 75  # exit status
CHUNK = 1 << 20

Step = Callable[[], object]


class Worker:
    """Makes the steps of one worker and answers the coordinator.

    Attributes:
      task: what the coordinator wants: mode, model, batch_size, threads and step_limit (seconds).
    """

    def __init__(self) -> None:
        self.task: dict[str, Any] = json.loads(sys.argv[1])
        # The framework and its libraries may print; the answers go where they cannot.
        self._answers: TextIO = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._requests: queue.Queue[dict[str, Any]] = queue.Queue()
        self._began: float | None = None
        for loop in (self._read, self._watch):
            threading.Thread(target=loop, daemon=True).start()

    def run_steps(self, step: Step, count: int) -> list[float]:
        """Returns the seconds of each of `count` steps."""
        seconds = []
        for _ in range(count):
            self._began = start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
            self._began = None
        return seconds

    def serve(
        self,
        step: Step,
        facts: dict[str, Any],
        predicted_bytes: Callable[[], int | None],
        tell: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        """Tells the coordinator `facts` and what it has spent, then obeys it.

        Args:
          step: makes a training step.
          facts: "parameters" and "stock_bytes" (what the stock strategy would send, if known).
          predicted_bytes: returns what the latest step has sent in theory, `None` if unknown.
          tell: what is asked for by "ask".
        """
        self._answer({**facts, **spent()})
        while True:
            request = self._requests.get()
            if "steps" in request:
                seconds = self.run_steps(step, request["steps"])
                self._answer({"seconds": seconds, "predicted_bytes": predicted_bytes()})
            elif "ask" in request:
                assert tell is not None
                self._answer(tell())
            elif "receive" in request:
                self._receive(request["receive"])
            else:
                self._send(request["send"], tuple(request["to"]))

    def _answer(self, value: dict[str, Any]) -> None:
        self._answers.write(json.dumps(value) + "\n")

    def _read(self) -> None:
        for line in sys.stdin:
            self._requests.put(json.loads(line))
        os._exit(0)

    def _watch(self) -> None:
        while True:
            time.sleep(1)
            began = self._began
            if began is not None and time.perf_counter() - began > self.task["step_limit"]:
                faulthandler.dump_traceback()
                os._exit(HUNG)

    def _receive(self, size: int) -> None:
        with socket.create_server(("", 0)) as server:
            self._answer({"port": server.getsockname()[1]})
            connection, _ = server.accept()
        with connection:
            start = time.perf_counter()
            while size > 0:
                got = len(connection.recv(CHUNK))
                if not got:
                    raise ConnectionError(f"{size} bytes are missing")
                size -= got
        self._answer({"seconds": time.perf_counter() - start})

    def _send(self, size: int, address: tuple[str, int]) -> None:
        chunk = memoryview(bytes(CHUNK))
        with socket.create_connection(address) as connection:
            while size > 0:
                connection.sendall(chunk[: min(size, CHUNK)])
                size -= CHUNK
        self._answer({})


def spent(process: int | str = "self") -> dict[str, float]:
    """Returns a process's seconds, of a processor and since it began, and the memory of its own."""
    stat, rollup = (
        Path("/proc", str(process), name).read_text() for name in ("stat", "smaps_rollup")
    )
    fields = stat.rpartition(")")[2].split()
    user, system, began = (int(fields[i]) / os.sysconf("SC_CLK_TCK") for i in (11, 12, 19))
    return {
        "processor_seconds": user + system,
        "seconds": time.clock_gettime(time.CLOCK_BOOTTIME) - began,
        "memory_bytes": 1024 * sum(map(int, re.findall(r"Private_.*: *(\d+) kB", rollup))),
    }
