"""SIGTERM, with which schedulers announce the end of a job, makes all workers stop together."""

import math
import os
import signal
import threading
import time
from typing import Any

from absl import logging

from tf_gc.keras.strategy import workers_of

# Schedulers such as Kubernetes and Slurm end a job 30 seconds or more after SIGTERM. If workers ask
# each other once a second, they have most of that time for saving, and the steps hardly slow down.
_SECONDS_BETWEEN_QUESTIONS = 1.0
# Slurm signals a worker and its launcher, which hands the signal on.
_SAME_SIGNAL_SECONDS = 5.0


class Preemption:
    """Whether `fit` of a Keras model has to stop because a worker got SIGTERM.

    One worker may get the signal alone, or earlier than others, but all have to stop after the same
    step. So they ask each other whenever the slowest one has trained for about a second.
    """

    def __init__(self) -> None:
        self._asked = self._watching = False
        self._signalled = math.inf  # when the first signal came

    def watch(self, model: Any) -> None:
        """Takes SIGTERM in a `fit` as a request, unless the program has a handler of its own."""
        self._model, self._workers = model, workers_of(model)
        self._since = time.monotonic()
        self._steps = self._steps_between = 0
        # Python handles signals in the main thread alone.
        if threading.current_thread() is not threading.main_thread():
            logging.warning(
                "tf_gc: fit does not run in the main thread, so BackupAndRestore cannot watch "
                "SIGTERM; call its request_stop to save and stop"
            )
        elif signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._handle)
            self._watching = True

    def unwatch(self) -> None:
        """Ends with it."""
        self._asked, self._signalled = False, math.inf
        self._take_no_signals()

    def request(self) -> None:
        self._asked = True

    def agreed(self, ask_now: bool = False) -> bool:
        """Returns whether all workers stop now; all of them call this after each step.

        With `ask_now`, the same on all workers, they ask each other in any case.
        """
        if self._workers.count == 1:
            return self._asked
        self._steps += 1
        if self._steps <= self._steps_between and not ask_now:
            return False
        milliseconds = int(1000 * (time.monotonic() - self._since))
        asked, slowest = self._workers.largest("trains", self._asked, milliseconds)
        per_step = max(slowest, 1) / 1000 / self._steps
        self._steps_between = int(_SECONDS_BETWEEN_QUESTIONS / per_step)
        self._since, self._steps = time.monotonic(), 0
        return bool(asked)

    def _handle(self, number: int, frame: Any) -> None:
        # A later signal, or a signal after `fit` ended with an error, ends the process as usual.
        now = time.monotonic()
        self._signalled = min(self._signalled, now)
        if self._is_in_fit(frame) and now <= self._signalled + _SAME_SIGNAL_SECONDS:
            self._asked = True
        else:
            self._take_no_signals()
            os.kill(os.getpid(), number)

    def _take_no_signals(self) -> None:
        if self._watching:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._watching = False

    def _is_in_fit(self, frame: Any) -> bool:
        while frame is not None:
            if frame.f_code.co_name == "fit" and frame.f_locals.get("self") is self._model:
                return True
            frame = frame.f_back
        return False
