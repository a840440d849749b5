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

import tensorflow as tf

from tf_gc import _compat
from tf_gc.cluster.cluster import Resolver, tasks_of
from tf_gc.launch.tasks import MET, note

_PAUSE = 1.0  # seconds between looks; two in a row have to find the same
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
    if getattr(sys, "last_value", None) is not None:  # the program ends with an error
        gc.freeze()


def _watch(name: str, address: str) -> None:
    """Lets collectives fail if they wait, and nobody listens any more at the address."""
    found = 0 if _answer(address) else -1  # never look where no firewall lets this process
    while 0 <= found < 2:
        time.sleep(_PAUSE)
        # Whose program has ended well is gone, too, and nobody waits.
        found = found + 1 if _waits() and _answer(address) is False else 0
    _watched.discard(address)
    if found > 0:
        _compat.abort_collectives(tf.errors.UNAVAILABLE, f"{name} has ended")


def _waits() -> bool:
    frames = sys._current_frames().values()
    return any("/tensorflow/python/" in frame.f_code.co_filename for frame in frames)


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
