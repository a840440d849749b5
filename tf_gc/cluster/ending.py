"""A worker ends soon after another one has died, so that all of them can start again.

It may wait for the dead one to fetch what it has, without a connection that could break, until the
coordination service misses heartbeats (10 s). And Python would look for garbage in the graphs for
seconds before the process ends.
"""

import atexit
import gc
import socket
import sys
import threading
import time
from typing import Any

import tensorflow as tf

from tf_gc import _compat
from tf_gc.cluster.cluster import Resolver, tasks_of
from tf_gc.launch.tasks import MET, note

_PAUSE = 1.0  # seconds between looks
_watched: set[str] = set()


def end_soon_after_others(resolver: Resolver) -> None:
    """Watches the next worker of a cluster, in which all have met, from a thread."""
    note(MET)
    atexit.register(_leave_garbage)
    addresses = {k: v for k, v in sorted(tasks_of(resolver).items()) if k[0] != "evaluator"}
    tasks = [*addresses]
    job, index = tasks[(tasks.index((resolver.task_type, resolver.task_id)) + 1) % len(tasks)]
    if (address := addresses[job, index]) not in _watched:
        _watched.add(address)
        arguments = (f"{job} {index} at {address}", address)
        threading.Thread(target=_watch, args=arguments, name="tf_gc watch", daemon=True).start()


def _leave_garbage() -> None:
    if "last_value" in vars(sys):  # the program ends with an error
        gc.freeze()


def _watch(name: str, address: str) -> None:
    """Lets collectives fail if nobody listens any more at the address, and a thread waits."""
    waiting: set[Any] = set()
    if _answer(address):  # no firewall refuses instead
        while True:
            time.sleep(_PAUSE)
            if _answer(address) is not False:
                continue
            # If the other's program has ended well, nothing waits for as long in one call.
            frames = sys._current_frames().values()
            calls: set[Any] = {
                each for each in frames if "/tensorflow/python/" in each.f_code.co_filename
            }
            if calls & waiting:
                break
            waiting = calls
        _compat.abort_collectives(tf.errors.UNAVAILABLE, f"{name} has ended")
    _watched.discard(address)


def _answer(address: str) -> bool | None:
    """Whether somebody listens, `None` if that is unknown."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return None
    return True
