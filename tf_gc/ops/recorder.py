"""The recorder of a strategy: when its steps were, and what was measured in some of them.

Ops of the step write to it, on the host. Python reads it without running a graph, so that nobody
waits for a device.
"""

import enum
import functools
import weakref

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tf_gc.ops import _loader
from tf_gc.ops._arguments import is_automatic
from tf_gc.ops.library import functions


class Series(enum.IntEnum):
    """The series that are kept of a model, by the numbers of custom_ops/lib/recorder/recorder.h.

    Intervals are times from step to step, in seconds, the oldest first. One counts if the steps at
    both of its ends are of one kind, in full precision or compressed, and no step of the other
    kind, of whatever model, was between them.
    """

    FULL_PRECISION = 0  # the latest 256 intervals of steps in full precision
    COMPRESSED = 1  # the same of compressed steps
    FIRST = 2  # the first 64 intervals of compressed steps after the latest other one
    # How many in full precision, how many compressed, whether the latest one was, 1 or 0, and the
    # numbers of the latest one and of the one before among the steps of all models, from 1 on.
    STEPS = 3
    MEASURED = 4  # which compressed step was measured last, from 1 on, and what was kept of it
    TRIAL = 5  # what was kept of the latest trial of both kinds


class Recorder:
    """The steps of the models of one strategy. A model has a number, its reduction."""

    def __init__(self) -> None:
        library = functions()
        self._number = library.tf_gc_recorder_make()
        weakref.finalize(self, library.tf_gc_recorder_free, self._number).atexit = False

    def note_step(self, reduction: int, compressed: bool) -> tf.Tensor:
        """Notes, whenever the op runs, that a step sums gradients, compressed or not.

        Returns whether this step is one to be measured: a bool scalar on the host.
        """
        with tf.device("CPU:0"):
            return _loader.load().tf_gc_note_step(
                recorder=self._number, reduction=reduction, compressed=compressed
            )

    def trial_times(self, reduction: int, latest: int) -> tf.Tensor:
        """Returns how long steps in full precision and compressed ones take, when the op runs.

        int64 [2] on the host, in nanoseconds: the median of the `latest` latest times from a step
        to the next one where both are of the kind; the largest int64 if there are none.
        """
        with tf.device("CPU:0"):
            return _loader.load().tf_gc_trial_times(
                recorder=self._number, reduction=reduction, latest=latest
            )

    def keep(self, reduction: int, values: tf.Tensor, of_trial: bool = False) -> tf.Operation:
        """Keeps, when the op runs, float64 values that were measured in the latest compressed step.

        With `of_trial` they say how a trial ended instead.
        """
        with tf.device("CPU:0"):
            return _loader.load().tf_gc_keep(
                values, recorder=self._number, reduction=reduction, of_trial=of_trial
            )

    def measure_every(self, steps: int) -> None:
        """From now on measures one of `steps` compressed steps; at first one of 100."""
        functions().tf_gc_recorder_measure_every(self._number, steps)

    def forget(self, reduction: int) -> None:
        """Forgets a model."""
        functions().tf_gc_recorder_forget(self._number, reduction)

    def read(self, reduction: int, series: Series) -> npt.NDArray[np.float64]:
        """Returns what is kept of a model, [numbers]: none if there was nothing to keep so far."""
        read = functools.partial(functions().tf_gc_recorder_read, self._number, reduction, series)
        numbers = np.empty(read(0, None))
        return numbers[: read(numbers.size, numbers.ctypes.data)]


def count_sent(messages: tf.Tensor, codec: str, threshold: float | str) -> tf.Tensor:
    """Returns how many codes of messages stand for something other than zero, on the host.

    An int64 scalar for all rows of messages that `encode` or `reencode` made. With one bit, which
    cannot say zero, all codes count, also those that fill up a block.
    """
    with tf.device("CPU:0"):
        return _loader.load().tf_gc_count_sent(
            messages, codec=codec, automatic=is_automatic(threshold)
        )
