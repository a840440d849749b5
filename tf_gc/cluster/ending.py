"""A worker ends soon after another one has died, so that all of them can start again.

It may wait for the dead one to fetch what it has, without a connection that could break, until the
coordination service misses heartbeats (10 s). And Python would look for garbage in the graphs for
seconds before the process ends.
"""

import atexit
import functools
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
_MOST = 8  # other workers at whom one looks


def end_soon_after_others(resolver: Resolver) -> None:
    """Watches the next workers of a cluster, in which all have met, from a thread."""
    note(MET)
    atexit.register(_leave_garbage)
    tasks = {k: v for k, v in sorted(tasks_of(resolver).items()) if k[0] != "evaluator"}
    names = [f"{job} {index} at {address}" for (job, index), address in tasks.items()]
    mine = [*tasks].index((resolver.task_type, resolver.task_id))
    _start(*(names[mine + 1 :] + names[:mine])[:_MOST])


@functools.cache
def _start(*names: str) -> None:
    threading.Thread(target=_watch, args=names, name="tf_gc watch", daemon=True).start()


def _leave_garbage() -> None:
    if "last_value" in vars(sys):  # the program ends with an error
        gc.freeze()


def _watch(*names: str) -> None:
    """Lets collectives fail if nobody listens any more at an address, and a thread waits."""
    there = [name for name in names if _answer(name)]  # no firewall refuses instead
    while there:
        time.sleep(_PAUSE)
        if gone := next((name for name in there if _answer(name) is False), None):
            before = _calls()
            time.sleep(_PAUSE)
            # If the program of the other one has ended well, nothing waits for as long.
            if before & _calls() and _answer(gone) is False:
                _compat.abort_collectives(tf.errors.UNAVAILABLE, f"{gone} has ended")
                return


def _calls() -> set[Any]:
    """The calls of TensorFlow in which a thread is."""
    frames = sys._current_frames().values()
    return {frame for frame in frames if "/tensorflow/python/" in frame.f_code.co_filename}


def _answer(name: str) -> bool | None:
    """Whether somebody listens at the address that ends a name, `None` if that is unknown."""
    host, _, port = name.split()[-1].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return None
    return True
