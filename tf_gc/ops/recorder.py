"""The recorder of a strategy: when its steps were, and what was measured in some of them.

Ops of the step write to it, on the host. Python reads it without running a graph, so that nobody
waits for a device.
"""

import ctypes
import functools
import weakref

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tf_gc.ops import _loader
from tf_gc.ops._arguments import is_automatic

# Instead of the number of a candidate, where there is no choice.
NO_CANDIDATE = -1


class Recorder:
    """The steps of the models of one strategy. A model has a number, its reduction."""

    def __init__(self) -> None:
        library = _functions()
        self._number = library.tf_gc_recorder_make()
        weakref.finalize(self, library.tf_gc_recorder_free, self._number).atexit = False

    def note_step(
        self, reduction: int, compressed: bool, candidate: int = NO_CANDIDATE
    ) -> tf.Tensor:
        """Notes, whenever the op runs, that a step sums gradients.

        Args:
          reduction: the model.
          compressed: whether the step compresses, or sums in full precision.
          candidate: where there are several ways to sum gradients, the number of the one that the
            step takes.

        Returns:
          Whether this step is one to be measured: a bool scalar on the host.
        """
        with tf.device("CPU:0"):
            return _loader.load().tf_gc_note_step(
                recorder=self._number,
                reduction=reduction,
                compressed=compressed,
                candidate=candidate,
            )

    def trial_times(self, reduction: int, candidates: int, latest: int) -> tf.Tensor:
        """Returns how long a step takes with each candidate, when the op runs.

        Args:
          reduction: the model.
          candidates: how many there are, from number 0 on.
          latest: how many of a candidate's latest times count.

        Returns:
          int64 [candidates] on the host, in nanoseconds: the median of the times from a step to
          the next one where both are of the candidate; the largest int64 if there are none.
        """
        with tf.device("CPU:0"):
            return _loader.load().tf_gc_trial_times(
                recorder=self._number, reduction=reduction, candidates=candidates, latest=latest
            )

    def keep_trial(self, reduction: int, times: tf.Tensor, chosen: tf.Tensor) -> tf.Operation:
        """Keeps, when the op runs, how a trial of candidates ended.

        Args:
          reduction: the model.
          times: int64 [candidates], in nanoseconds.
          chosen: the number of the candidate chosen, an int64 scalar.
        """
        with tf.device("CPU:0"):
            return _loader.load().tf_gc_keep_trial(
                times, chosen, recorder=self._number, reduction=reduction
            )

    def keep(self, reduction: int, values: tf.Tensor) -> tf.Operation:
        """Keeps, when the op runs, what was measured in the latest compressed step.

        Args:
          reduction: the model.
          values: float64, of any shape.
        """
        with tf.device("CPU:0"):
            return _loader.load().tf_gc_keep_measurement(
                values, recorder=self._number, reduction=reduction
            )

    def measure_every(self, steps: int) -> None:
        """Measures one of so many compressed steps from now on; at first one of 100."""
        _functions().tf_gc_recorder_measure_every(self._number, steps)

    def candidate(self, reduction: int) -> int:
        """Returns the candidate of the latest step, `NO_CANDIDATE` if there is none."""
        return int(_functions().tf_gc_recorder_candidate(self._number, reduction))

    def trial(self, reduction: int, candidates: int) -> tuple[int, npt.NDArray[np.float64]]:
        """Returns the candidate that the latest trial chose, and the time of each.

        Args:
          reduction: the model.
          candidates: how many there are.

        Returns:
          The number, and [candidates] in seconds, NaN for a candidate without a time;
          `NO_CANDIDATE` and no times if no trial of so many candidates has ended.
        """
        times = np.empty(candidates, np.int64)
        chosen = _functions().tf_gc_recorder_trial(
            self._number, reduction, candidates, times.ctypes.data
        )
        if chosen == NO_CANDIDATE:
            return NO_CANDIDATE, np.empty(0)
        return int(chosen), np.where(times < np.iinfo(times.dtype).max, times * 1e-9, np.nan)

    def forget(self, reduction: int) -> None:
        """Forgets a model."""
        _functions().tf_gc_recorder_forget(self._number, reduction)

    def steps(self, reduction: int, compressed: bool) -> int:
        """Returns how many steps of a kind there were."""
        return int(_functions().tf_gc_recorder_steps(self._number, reduction, compressed))

    def intervals(self, reduction: int, compressed: bool) -> npt.NDArray[np.float64]:
        """Returns the latest times from step to step, in seconds, the oldest first.

        An interval counts if the steps at both of its ends are of this kind, and no step of the
        other kind, of whatever model, was between them. Those before the candidate changed do not.
        """
        nanoseconds = np.empty(_functions().tf_gc_recorder_capacity(), np.int64)
        count = _functions().tf_gc_recorder_intervals(
            self._number, reduction, compressed, nanoseconds.ctypes.data
        )
        return nanoseconds[:count] * 1e-9

    def first_intervals(self, reduction: int) -> npt.NDArray[np.float64]:
        """Returns the first intervals after the latest step in full precision, up to 64.

        They are between compressed steps, in seconds, the oldest first.
        """
        nanoseconds = np.empty(_functions().tf_gc_recorder_capacity(), np.int64)
        count = _functions().tf_gc_recorder_first(self._number, reduction, nanoseconds.ctypes.data)
        return nanoseconds[:count] * 1e-9

    def measured(self, reduction: int, count: int) -> tuple[int, npt.NDArray[np.float64]]:
        """Returns the number of the compressed step that was measured last, and what was kept.

        Args:
          reduction: the model.
          count: how many values.

        Returns:
          The step, from 1 on, and the values, [count]; 0 and no values if there are not so many.
        """
        values = np.empty(count, np.float64)
        step = int(
            _functions().tf_gc_recorder_measured(self._number, reduction, count, values.ctypes.data)
        )
        return step, values if step else values[:0]


def count_sent(messages: tf.Tensor, codec: str, threshold: float | str) -> tf.Tensor:
    """Returns how many codes of messages stand for something other than zero, on the host.

    Args:
      messages: int64, [rows, words], each row a message that `encode` or `reencode` made.
      codec: the codec's name. With one bit, which cannot say zero, all codes count, also those
        that fill up a block.
      threshold: `"auto"` or a number.

    Returns:
      The number in all rows, an int64 scalar.

    Raises:
      ValueError: if the threshold is a string other than `"auto"`.
      tf.errors.InvalidArgumentError: if no message of the codec has that length.
    """
    with tf.device("CPU:0"):
        return _loader.load().tf_gc_count_sent(
            messages, codec=codec, automatic=is_automatic(threshold)
        )


@functools.cache
def _functions() -> ctypes.CDLL:
    """Returns the functions of custom_ops/lib/c_api/recorder_api.h."""
    _loader.load()
    library = ctypes.CDLL(str(_loader.library_path()))
    number, kind, array = ctypes.c_int64, ctypes.c_int, ctypes.c_void_p
    for name, result, arguments in (
        ("make", number, []),
        ("free", None, [number]),
        ("measure_every", None, [number, number]),
        ("forget", None, [number, number]),
        ("steps", number, [number, number, kind]),
        ("capacity", number, []),
        ("intervals", number, [number, number, kind, array]),
        ("first", number, [number, number, array]),
        ("candidate", number, [number, number]),
        ("trial", number, [number, number, number, array]),
        ("measured", number, [number, number, number, array]),
    ):
        function = getattr(library, f"tf_gc_recorder_{name}")
        function.restype, function.argtypes = result, arguments
    return library
