"""A worker ends soon after another one has died, so that all of them can start again.

It may wait for the dead one to fetch what it has, without a connection that could break, until the
coordination service misses heartbeats (10 s). And Python would look for garbage in the graphs for
seconds before the process ends.
"""

import atexit
import functools
import gc
import sys
import threading
import time
from typing import Any

import tensorflow as tf

from tf_gc import _compat
from tf_gc.cluster.cluster import Resolver, tasks_of
from tf_gc.launch.tasks import MET, answers, tell_launcher

_PAUSE = 1.0  # seconds between looks
_MOST = 8  # other workers at whom one looks


def end_soon_after_others(resolver: Resolver) -> None:
    """Watches the next workers of a cluster, in which all have met, from a thread."""
    tell_launcher(MET)
    atexit.register(_leave_garbage)
    tasks = {k: v for k, v in sorted(tasks_of(resolver).items()) if k[0] != "evaluator"}
    mine = [*tasks].index((resolver.task_type, resolver.task_id))
    addresses = [*tasks.values()]
    _start(*(addresses[mine + 1 :] + addresses[:mine])[:_MOST])


@functools.cache
def _start(*addresses: str) -> None:
    threading.Thread(target=_watch, args=addresses, name="tf_gc watch", daemon=True).start()


def _leave_garbage() -> None:
    if "last_value" in vars(sys):  # the program ends with an error
        gc.freeze()


def _watch(*addresses: str) -> None:
    """Lets collectives fail if nobody listens any more at an address, and a thread waits."""
    there = [*filter(answers, addresses)]  # no firewall refuses instead
    while there:
        time.sleep(_PAUSE)
        if gone := next((each for each in there if answers(each) is False), None):
            before = _calls()
            time.sleep(_PAUSE)
            # If the program of the other one has ended well, nothing waits for as long.
            if before & _calls() and answers(gone) is False:
                words = f"the worker at {gone} has ended"
                _compat.context().abort_collective_ops(tf.errors.UNAVAILABLE, words)
                return


def _calls() -> set[Any]:
    """The calls of TensorFlow in which a thread is."""
    frames = sys._current_frames().values()
    return {frame for frame in frames if "/tensorflow/python/" in frame.f_code.co_filename}
