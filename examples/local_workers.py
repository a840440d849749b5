"""Starts the workers of a job as processes of this host, for examples, benchmarks and tests."""

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any


def free_ports(count: int) -> list[int]:
    """Returns ports that nobody listens on at this moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def local_addresses(count: int) -> list[str]:
    """Returns addresses of this host for that many workers."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


def tf_configs(addresses: Sequence[str], chief: bool = False) -> list[str]:
    """Returns the TF_CONFIG of each worker; with `chief` the first of them is the chief."""
    jobs = {"worker": len(addresses)}
    if chief:
        jobs = {"chief": 1, "worker": len(addresses) - 1}
    return configs_of(jobs, addresses)


def configs_of(jobs: Mapping[str, int], addresses: Sequence[str]) -> list[str]:
    """Returns the TF_CONFIG of each task of a cluster, one job after the other.

    Args:
      jobs: how many tasks each job has.
      addresses: the addresses of all tasks, in the same order.
    """
    rest = iter(addresses)
    cluster = {job: list(itertools.islice(rest, count)) for job, count in jobs.items()}
    return [
        json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
        for job, count in jobs.items()
        for index in range(count)
    ]


def environment(config: str | None) -> dict[str, str]:
    """Returns the environment of a worker with that TF_CONFIG; `None` is for one without any."""
    if config is None:
        return dict(os.environ)
    # Workers would ask a proxy of the environment for each other.
    addresses = [address for job in json.loads(config)["cluster"].values() for address in job]
    hosts = sorted({address.rpartition(":")[0] for address in addresses})
    return {**os.environ, "TF_CONFIG": config, "no_grpc_proxy": ",".join(hosts)}


class LocalWorkers:
    """Worker processes that do not outlive the `with` block.

    Attributes:
      processes: the workers, in the order in which they were started.
    """

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> "LocalWorkers":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(
        self,
        command: Sequence[str],
        config: str | None,
        variables: Mapping[str, str] | None = None,
        **options: Any,
    ) -> "subprocess.Popen[Any]":
        """Starts a worker.

        Args:
          command: the program and its arguments.
          config: the worker's TF_CONFIG; `None` for a worker without one.
          variables: further variables of its environment.
          **options: arguments of `subprocess.Popen`, such as `stdout`.
        """
        process = subprocess.Popen(
            command,
            env={**environment(config), **(variables or {})},
            start_new_session=True,  # Ctrl-C is for the process that starts workers
            **options,
        )
        self.processes.append(process)
        return process

    def wait(self, limit: float | None = None, first: bool = False) -> int | None:
        """Waits until all workers have ended, or one has failed.

        Args:
          limit: seconds; `None` for no limit.
          first: whether it is enough that the first worker has ended.

        Returns:
          The number of a worker that failed, `None` if all ended well.

        Raises:
          TimeoutError: if workers still run after that time.
        """
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            states = [process.poll() for process in self.processes]
            failed = [index for index, state in enumerate(states) if state]
            if failed:
                # The one that was killed, not one that noticed.
                return min(failed, key=lambda index: states[index] or 0)
            if None not in (states[:1] if first else states):
                return None
            if deadline is not None and time.monotonic() > deadline:
                running = [index for index, state in enumerate(states) if state is None]
                raise TimeoutError(f"workers {running} still run after {limit:g} s")
            time.sleep(0.1)

    def stop(self) -> None:
        """Kills all workers."""
        for process in self.processes:
            process.kill()  # TensorFlow's workers do not end at SIGTERM
        for process in self.processes:
            process.wait()


def launch(jobs: int | Mapping[str, int]) -> int:
    """Runs this program, with its arguments, as local workers; returns the exit status.

    The first worker writes to the terminal. The output of another one is shown if it fails.

    Args:
      jobs: how many workers, which all end by themselves; or how many tasks each job of a cluster
        has, of which the first ends by itself, and the others with it.
    """
    one_job = isinstance(jobs, int)
    counts = {"worker": jobs} if isinstance(jobs, int) else jobs
    count = sum(counts.values())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with contextlib.ExitStack() as files, LocalWorkers() as workers:
        logs: list[IO[bytes] | None] = [None]
        logs += [files.enter_context(tempfile.TemporaryFile()) for _ in range(1, count)]
        try:
            configs = configs_of(counts, local_addresses(count))
            for log, config in zip(logs, configs, strict=True):
                workers.start(
                    [sys.executable, *sys.argv],
                    config,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            failed = workers.wait(first=not one_job)
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        if failed is None:
            return 0
        workers.stop()
        report(failed, workers.processes[failed].returncode, logs[failed])
        return 1


def report(index: int, status: int, log: IO[bytes] | None) -> None:
    """Says which worker failed, and what it wrote if that was not seen yet."""
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"exited with {status}"
    print(f"\nworker {index} {how}; the others were ended", file=sys.stderr)
    if log is not None:
        log.seek(0)
        sys.stderr.write(log.read().decode(errors="replace"))
