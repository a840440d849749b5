"""Jobs of one or several worker processes on this host, each measured apart from all others."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def run(program: str, task: dict[str, Any], workers: int, limit: float) -> list[Any]:
    """Runs a job and returns what its workers have to say.

    Args:
      program: the file to run, once for each worker, with the task as JSON after `--job`.
      task: what to do.
      workers: how many; a single one has no TF_CONFIG.
      limit: seconds that the job may take.

    Returns:
      The last line that each worker printed, which is JSON.

    Raises:
      RuntimeError: with a worker's log, if one fails.
      subprocess.TimeoutExpired: if the job takes longer.
    """
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(workers)]
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder, f"log{worker}") for worker in range(workers)]
        try:
            for worker, log in enumerate(logs):
                cluster = {
                    "cluster": {"worker": addresses},
                    "task": {"type": "worker", "index": worker},
                }
                config = {"TF_CONFIG": json.dumps(cluster)} if workers > 1 else {}
                with open(log, "wb") as output:
                    processes.append(
                        subprocess.Popen(
                            [sys.executable, program, "--job", json.dumps(task)],
                            stdout=output,
                            stderr=subprocess.STDOUT,
                            env={**os.environ, "no_grpc_proxy": "127.0.0.1", **config},
                        )
                    )
            for process, log in zip(processes, logs, strict=True):
                if process.wait(limit):
                    raise RuntimeError(f"{task} failed:\n{log.read_text()[-3000:]}")
            return [json.loads(log.read_text().splitlines()[-1]) for log in logs]
        finally:
            for process in processes:
                process.kill()
                process.wait()


def status() -> dict[str, int]:
    """Returns the numbers of /proc/self/status; memory is in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = [line.split(":", 1) for line in lines]
    return {key: int(v[0]) for key, text in fields if (v := text.split()) and v[0].isdecimal()}


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
