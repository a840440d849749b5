"""Measurements of the steps of a strategy, for `strategy.report()` and the verdict."""

import dataclasses
import functools
import itertools
import math
import operator
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from tf_gc.network.traffic import Traffic
from tf_gc.observe import verdict
from tf_gc.observe.accounting import Built, Pairs
from tf_gc.observe.log import log_visibly
from tf_gc.observe.report import BucketReport, Comparison, Report, StepTime, TrialReport
from tf_gc.observe.stream_steps import Array, StreamSteps
from tf_gc.ops.recorder import Recorder, Series
from tf_gc.params import Auto, CompressionParams
from tf_gc.params.composed import WAYS
from tf_gc.reducers.reducer import Reduction
from tf_gc.schedule import Bucket, Schedule, together
from tf_gc.state.stored import widened

# A stream takes part in steps as long as it is not this many of its own periods late.
_OVERDUE = 4

# Seconds between two looks for a verdict: at first, and at most.
_FIRST, _LAST = 0.25, 2.0


class Measurement:
    """Records the steps of a strategy and what they send, and logs the verdict.

    A step is made of its streams: a program may have several optimizers.
    """

    def __init__(self, params: CompressionParams) -> None:
        self._params = params
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._streams: list[StreamSteps] = []
        self._to_judge: weakref.WeakSet[StreamSteps] = weakref.WeakSet()
        self._is_watched = False  # by a thread that logs verdicts
        self.replicas: int | None = None
        self.recorder = Recorder()
        self.logs_verdicts = True  # or another worker does, whose steps take as long

    def steps_of(self, schedule: Schedule, notes: dict[Any, Any], *ends: Any) -> StreamSteps:
        """Returns the steps of gradients; always the same, kept in the notes of `ends`."""
        key = ("steps", *(bucket.variables for bucket in schedule.buckets))
        with self._lock:
            if key not in notes:
                notes[key] = StreamSteps(self.recorder, next(self._numbers), ends)
            return notes[key]

    def note_step(self, steps: StreamSteps, gradient: tf.Tensor, compressed: bool) -> tf.Tensor:
        """Records a step; returns whether density and residuals are to be measured in it.

        The time is that at which the first gradient to be summed is there, so that the iterations
        of a loop record one by one.
        """
        with tf.control_dependencies([gradient]):
            return self.recorder.note_step(steps.number, compressed)

    def measure_if(
        self, wanted: tf.Tensor, steps: StreamSteps, reductions: Sequence[Reduction]
    ) -> None:
        """Measures density and residuals of buckets where `note_step` has returned `wanted`."""

        def keep() -> tf.Tensor:
            values = [_measure(reduction) for reduction in reductions]
            with tf.device("CPU:0"):
                self.recorder.keep(steps.number, tf.concat(values, axis=0))
            return wanted

        tf.cond(wanted, keep, lambda: wanted)

    def built(
        self,
        steps: StreamSteps,
        schedule: Schedule,
        pairs: Pairs,
        reductions: Sequence[Reduction] = (),
        compressed: bool = True,
    ) -> None:
        """Notes what a step sends; called while it is built.

        What a compressed step sends is logged, if it is new.
        """
        assert self.replicas is not None
        before = steps.built.get(compressed)
        now = Built.of(schedule, pairs, reductions, self.replicas, before)
        with self._lock:
            if not steps.built:
                self._streams = [*filter(StreamSteps.is_alive, self._streams), steps]
                if schedule.buckets:
                    self._to_judge.add(steps)
            steps.built[compressed] = now
            watch = self.logs_verdicts and steps in self._to_judge and not self._is_watched
            self._is_watched |= watch
        is_new = before is None or (before.traffic != now.traffic and not tf.executing_eagerly())
        if compressed and is_new:
            logging.info("tf_gc: %s: %s", self._params, now.traffic)
            logging.vlog(1, "tf_gc: schedule:\n%s", schedule)
            for bucket in schedule.buckets:
                if caution := bucket.reducer.caution:
                    logging.info("tf_gc: %s: %s", ", ".join(bucket.variables), caution)
        if watch:
            threading.Thread(
                None, _log_verdicts, "tf_gc verdict", (weakref.ref(self),), daemon=True
            ).start()

    def schedule(self) -> Schedule | None:
        """Returns how the gradients of a step are sent; `None` before one was built."""
        schedules = []
        for steps in self._current():
            counts = steps.counts.full_precision, steps.counts.compressed
            schedules.append(dataclasses.replace(steps.now().schedule, steps=counts))
        return together(schedules) if schedules else None

    def traffic(self) -> Traffic | None:
        """Returns what a step sends; `None` before one was built."""
        return _together(self._current())

    def report(self) -> Report:
        """Returns what is known of the latest step."""
        current = self._current()
        return self._report(current, current)

    def _current(self) -> list[StreamSteps]:
        """Returns the streams of which a step is made now: all but those that are overdue.

        One is overdue if its last step was `_OVERDUE` times as long ago, in steps of all streams,
        as the one before that was before it.
        """
        with self._lock:
            # What is known of the last ones stays when their model has ended.
            living = [*filter(StreamSteps.is_alive, self._streams)]
            self._streams = living or self._streams
            counts = {steps: steps.counts for steps in self._streams}
        now = max((each.number for each in counts.values()), default=0)
        # One that was only built counts, too.
        return [
            steps
            for steps, (*_, number, before) in counts.items()
            if not number or now - number <= _OVERDUE * (number - before)
        ]

    def log_verdicts(self) -> bool:
        """Logs the verdicts that are due, and returns whether there are more to come."""
        with self._lock:
            waiting = {*filter(StreamSteps.is_alive, self._to_judge)}
            self._to_judge &= waiting
        current = self._current()
        # The streams of a step have one verdict, and those of earlier steps theirs.
        for streams in [current, *([steps] for steps in waiting - set(current))]:
            mine = [steps for steps in streams if steps in waiting and steps.lasts(verdict.STEPS)]
            judged = verdict.judge(self._report(streams, mine))
            if judged is None or (all(steps.told for steps in mine) and not judged.is_last):
                continue
            for steps in mine:
                steps.told = True
                if judged.is_last:
                    self._to_judge.discard(steps)
            log = log_visibly if judged.level == logging.INFO else logging.warning
            log(judged.text)
        with self._lock:
            self._is_watched = bool(self._to_judge)
            return self._is_watched

    def _report(self, streams: Sequence[StreamSteps], timed: Sequence[StreamSteps]) -> Report:
        """Returns the report of a step; times are of the largest of some of its streams."""
        report = Report(self._params, _together(streams), replicas=self.replicas)
        if not timed or not any(steps.elements for steps in streams):
            return report
        main = max(timed, key=lambda steps: steps.elements)
        rows = [row for steps in streams for row in steps.buckets()]
        buckets = tuple(
            BucketReport(
                bucket.variables,
                bucket.elements,
                bucket.dtype.name,
                codec=bucket.reducer.name,
                plan=bucket.reducer.plan,
                wire=bucket.reducer.wire,
                sent_bytes=sent_bytes,
                density=None if kept is None else min(kept[-1] / bucket.elements, 1.0),
            )
            for bucket, sent_bytes, kept in rows
        )
        known = [(b.density, b.elements) for b in buckets if b.density is not None]
        density = sum(d * n for d, n in known) / sum(n for _, n in known) if known else None
        measured = main.read(Series.MEASURED)
        # Otherwise something was compressed in these steps, too.
        warm_up_is_full = all(bucket.warm_up for bucket in main.now().schedule.buckets)
        full = main.read(Series.FULL_PRECISION).tolist() if warm_up_is_full else []
        return dataclasses.replace(
            report,
            buckets=buckets,
            full_precision=StepTime.of(full),
            compressed=StepTime.of(main.read(Series.COMPRESSED).tolist()),
            comparison=Comparison.of(full, main.read(Series.FIRST).tolist()),
            warm_up_steps=main.counts.full_precision,
            compressed_steps=main.counts.compressed,
            measured_step=int(measured[0]) if measured.size else 0,
            density=density,
            trial=_trial(main) if isinstance(self._params, Auto) else None,
            **_residual_ratios(rows),
        )


def _together(streams: Sequence[StreamSteps]) -> Traffic | None:
    traffics = [steps.traffic() for steps in streams]
    return functools.reduce(operator.add, traffics) if traffics else None


def _trial(steps: StreamSteps) -> TrialReport:
    counts, kept = steps.counts, steps.read(Series.TRIAL)
    current = WAYS[counts.latest] if counts.full_precision + counts.compressed else None
    if not kept.size or kept[0] < 0:  # it has not ended, or began anew
        return TrialReport(current=current)
    times = kept[1:]
    seconds = np.where(times < np.iinfo(np.int64).max, times * 1e-9, np.nan)
    return TrialReport(tuple(seconds.tolist()), WAYS[int(kept[0])], current)


def _log_verdicts(reference: "weakref.ref[Measurement]") -> None:
    """Logs verdicts when they are due: while a program trains, nobody else looks at its steps.

    The thread sleeps nearly all of the time, and ends with the measurement, to which it holds no
    reference, or when all verdicts are logged.
    """
    pause = _FIRST
    while True:
        time.sleep(pause)
        pause = min(1.1 * pause, _LAST)
        measurement = reference()
        if measurement is None or not measurement.log_verdicts():
            return
        del measurement


def _measure(reduction: Reduction) -> tf.Tensor:
    """Returns the squared norms of gradients and residuals, and how many elements were sent.

    float64 [2 * variables + 1], on the host. Without residuals their norms are zero.
    """
    replica = reduction.reporter
    with tf.device(replica.device):
        values = [getattr(gradient, "values", gradient) for gradient in replica.gradients]
        gradients = [tf.cast(value, tf.float32) for value in values]
        kept = zip(replica.residuals, replica.variables, strict=False)
        residuals = [widened(residual, variable.shape) for residual, variable in kept]
        # `l2_loss` makes no copy of the tensor.
        halves = [tf.nn.l2_loss(tensor) for tensor in (*gradients, *residuals)]
        norms = 2 * tf.stack(halves + [tf.zeros([])] * (2 * len(gradients) - len(halves)))
        sent = reduction.count_sent()
    with tf.device("CPU:0"):
        return tf.concat([tf.cast(norms, tf.float64), tf.cast(sent, tf.float64)[None]], axis=0)


def _residual_ratios(rows: Sequence[tuple[Bucket, Any, Array | None]]) -> dict[str, Any]:
    """Returns ratios, given buckets with what `_measure` returned of each."""
    squares: dict[str, Array] = {}  # of the norms of a gradient and of its residual
    for bucket, _, kept in rows:
        if kept is None or bucket.reducer.residual_dtype is None:
            continue
        for name, pair in zip(bucket.variables, kept[:-1].reshape(2, -1).T, strict=True):
            key, number = name, 1
            while key in squares:
                number += 1
                key = f"{name} ({number})"
            squares[key] = pair
    gradients, residuals = sum(squares.values(), np.zeros(2))
    return {
        "residual_ratio": math.sqrt(residuals / gradients) if gradients else None,
        "residual_ratios": {
            name: math.sqrt(residual / gradient) if gradient else math.nan
            for name, (gradient, residual) in squares.items()
        },
    }
