"""Ports for the workers of tests: no two processes of this host are given the same one."""

import fcntl
import functools
import itertools
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

# A block of ports for each process that asks. They lie below those that Linux gives to whoever
# asks for any port (32,768 and above), which may take one before the worker that it is for begins.
FIRST, BLOCK, BLOCKS = 20_000, 200, 60


_locks: list[object] = []  # of this process's block, until it ends


@functools.cache
def _turns() -> Iterator[int]:
    for number in range(BLOCKS):
        lock = open(Path(tempfile.gettempdir(), f"tf_gc_test_ports.{number}.lock"), "w")  # noqa: SIM115
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        _locks.append(lock)
        first = FIRST + number * BLOCK
        return itertools.cycle(range(first, first + BLOCK))
    raise RuntimeError(f"{BLOCKS} processes have ports already")


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """`count` ports that nobody listens on, and that were not returned lately."""
    return list(itertools.islice(filter(_is_free, _turns()), count))


def addresses(count: int) -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(count)]
