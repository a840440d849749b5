"""SIGTERM, with which schedulers announce the end of a job, makes all workers stop together."""

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


class Preemption:
    """Whether `fit` of a Keras model has to stop because a worker got SIGTERM.

    One worker may get the signal alone, or earlier than others, but all workers have to stop after
    the same step. So the workers ask each other whenever the slowest worker has trained for about a
    second. No signal is taken before `watch`.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._workers = workers_of(model)
        self._asked = False
        self._watching = False
        self._since = time.monotonic()
        self._steps = self._steps_between = 0

    def watch(self) -> None:
        """Takes SIGTERM as a request, unless the program has a handler of its own."""
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
        """Restores the default handling of SIGTERM, if `watch` changed it."""
        if self._watching:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._watching = False

    def request(self) -> None:
        """Asks `fit` to stop, as SIGTERM does; for programs with a handler of their own."""
        self._asked = True

    def agreed(self, ask_now: bool = False) -> bool:
        """Returns whether all workers stop now. All workers call this after each step.

        Args:
          ask_now: whether to ask the other workers now in any case; the same on all workers.
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
        # A second signal, or a signal after `fit` ended with an error, ends the process as usual.
        self.unwatch()
        if self._is_in_fit(frame):
            self._asked = True
        else:
            os.kill(os.getpid(), number)

    def _is_in_fit(self, frame: Any) -> bool:
        while frame is not None:
            if frame.f_code.co_name == "fit" and frame.f_locals.get("self") is self._model:
                return True
            frame = frame.f_back
        return False
