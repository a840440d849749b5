"""Starts the workers of an example as processes of this host."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import IO


def launch(count: int) -> int:
    """Starts local workers with this program's arguments; returns the exit status."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
    workers: list[subprocess.Popen] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with contextlib.ExitStack() as cleanup:
        # The first worker writes to the terminal, the others to files.
        logs: list[IO[bytes] | None] = [None]
        logs += [cleanup.enter_context(tempfile.TemporaryFile()) for _ in range(1, count)]
        cleanup.callback(stop, workers)
        try:
            for index, log in enumerate(logs):
                task = {"type": "worker", "index": index}
                config = json.dumps({"cluster": {"worker": addresses}, "task": task})
                workers.append(
                    subprocess.Popen(
                        [sys.executable, *sys.argv],
                        # Workers would ask a proxy of the environment for each other.
                        env={**os.environ, "TF_CONFIG": config, "no_grpc_proxy": "127.0.0.1"},
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,  # Ctrl-C is for this process only
                    )
                )
            failed = wait(workers)
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        if failed is None:
            return 0
        stop(workers)
        report(failed, workers[failed].returncode, logs[failed])
        return 1


def free_ports(count: int) -> list[int]:
    """Returns ports that nobody listens on at this moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait(workers: list[subprocess.Popen]) -> int | None:
    """Waits for all workers; returns the first that is seen to have failed, if one has."""
    while True:
        states = [worker.poll() for worker in workers]
        failed = [index for index, state in enumerate(states) if state]
        if failed:
            # The one that was killed, not one that noticed.
            return min(failed, key=lambda index: states[index] or 0)
        if None not in states:
            return None
        time.sleep(0.1)


def stop(workers: list[subprocess.Popen]) -> None:
    for worker in workers:
        worker.kill()  # TensorFlow's workers do not end at SIGTERM
    for worker in workers:
        worker.wait()


def report(index: int, status: int, log: IO[bytes] | None) -> None:
    """Says which worker failed, and what it wrote if that was not seen yet."""
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"exited with {status}"
    print(f"\nworker {index} {how}; the others were ended", file=sys.stderr)
    if log is not None:
        log.seek(0)
        sys.stderr.write(log.read().decode(errors="replace"))
