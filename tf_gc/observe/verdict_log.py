"""A thread that waits until enough steps were measured, and logs the verdict.

The steps record their times by themselves, and nobody else looks at them while a program trains:
there is not always a callback. The thread sleeps nearly all of the time, and reads a few numbers on
the host when it wakes up. It holds no reference to what it watches, ends with it or when all
verdicts are logged, and being a daemon does not keep a process from ending.
"""

import threading
import time
import weakref
from typing import Any

# Seconds between two looks: at first, and at most.
_FIRST, _LAST = 0.25, 2.0

_lock = threading.Lock()
_threads: "weakref.WeakKeyDictionary[Any, threading.Thread]" = weakref.WeakKeyDictionary()


def watch(judged: Any) -> None:
    """Has the verdicts on something logged when they are due, by a thread that may run already.

    Its method `log_verdicts` logs those that are due, and returns whether there are more to come.
    """
    with _lock:
        thread = _threads.get(judged)
        if thread is not None and thread.is_alive():
            return
        thread = threading.Thread(
            target=_wait, args=(weakref.ref(judged),), name="tf_gc verdict", daemon=True
        )
        _threads[judged] = thread
        thread.start()


def _wait(reference: "weakref.ref[Any]") -> None:
    pause = _FIRST
    while True:
        time.sleep(pause)
        pause = min(1.1 * pause, _LAST)
        judged = reference()
        if judged is None:
            return
        if not judged.log_verdicts():
            with _lock:
                # Otherwise a reduction that was built just now would find this thread alive.
                if not judged.log_verdicts():
                    _threads.pop(judged, None)
                    return
        del judged
