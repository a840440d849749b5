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
import numpy.typing as npt
import tensorflow as tf
from absl import logging

from tf_gc import _compat
from tf_gc.network.traffic import Traffic
from tf_gc.observe import verdict
from tf_gc.observe.accounting import Pairs, traffic_of
from tf_gc.observe.log import log_visibly
from tf_gc.observe.report import BucketReport, Comparison, Report, StepTime, TrialReport
from tf_gc.ops.recorder import Recorder, Series
from tf_gc.params import Auto, CompressionParams
from tf_gc.params.composed import WAYS
from tf_gc.reducers.reducer import Reduction
from tf_gc.schedule import Bucket, Schedule, together

# Instead of bytes, before the first step has run.
_NOT_YET = -1
# A stream takes part in steps as long as it is not this many of its own periods late.
_OVERDUE = 4
Array = npt.NDArray[np.float64]

# Seconds between two looks for a verdict: at first, and at most.
_FIRST, _LAST = 0.25, 2.0


@dataclasses.dataclass(frozen=True)
class Built:
    """How steps of a stream are built, and what they send, as far as that is known.

    Where only a step knows it, `latest` has the bytes of each bucket in the latest step that ran:
    those that were sent, and those that the stock ops would send besides.
    """

    schedule: Schedule
    traffic: Traffic
    sizes: tuple[int | None, ...]
    latest: Any = None

    def now(self) -> "Built":
        """Returns it with what the latest step sent."""
        if self.latest is None or (numbers := self.latest.numpy())[0, 0] == _NOT_YET:
            return self
        sent, stock = numbers.T
        traffic = self.traffic.measured(int(sent.sum()), int(stock.sum()))
        return Built(self.schedule, traffic, tuple(sent.tolist()))


class StreamSteps:
    """The steps of some gradients that are reduced together, of one stream."""

    def __init__(self, recorder: Recorder, number: int, ends: Sequence[Any]) -> None:
        self.number = number  # for the recorder, which forgets it when this is collected
        # The stream, and the first variable whose gradient is reduced.
        self.ends = [weakref.ref(each) for each in ends]
        self.built: dict[bool, Built] = {}  # steps in each way, by whether they compress
        self.told = False  # whether a preliminary verdict on it was logged
        weakref.finalize(self, recorder.forget, number).atexit = False

    def is_alive(self) -> bool:
        """Returns whether stream and variable still exist."""
        return all(end() is not None for end in self.ends)

    @property
    def elements(self) -> int:
        """The number of elements that are compressed."""
        ways = self.built.values()
        return max(sum(bucket.elements for bucket in way.schedule.buckets) for way in ways)


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
        self._tries = isinstance(params, Auto)
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
        traffic = traffic_of(schedule, pairs, reductions, self.replicas)
        numbers: list[list[Any]] = [
            [r.sent_bytes, 0 if r.stock_bytes is None else r.stock_bytes] for r in reductions
        ]
        if tf.executing_eagerly():
            numbers = [[int(n) for n in of_bucket] for of_bucket in numbers]
        before, latest = steps.built.get(compressed), None  # type: Built | None, Any
        sizes = tuple(sent if isinstance(sent, int) else None for sent, _ in numbers)
        if all(isinstance(n, int) for of_bucket in numbers for n in of_bucket):
            traffic = traffic.measured(
                *(sum(of_all) for of_all in zip([0, 0], *numbers, strict=True))
            )
        else:
            latest = None if before is None else before.latest
            if latest is None:
                with tf.init_scope(), tf.device("CPU:0"):
                    first = tf.fill([len(numbers), 2], tf.constant(_NOT_YET, tf.int64))
                    latest = _compat.OwnVariable(first, trainable=False)
            with tf.device("CPU:0"):
                rows = [[tf.cast(n, tf.int64) for n in of_bucket] for of_bucket in numbers]
                latest.assign(tf.stack(rows), read_value=False)
        with self._lock:
            if not steps.built:
                self._streams = [*filter(StreamSteps.is_alive, self._streams), steps]
                if schedule.buckets:
                    self._to_judge.add(steps)
            steps.built[compressed] = Built(schedule, traffic, sizes, latest)
            watch = self.logs_verdicts and steps in self._to_judge and not self._is_watched
            self._is_watched |= watch
        if compressed and (
            before is None or (before.traffic != traffic and not tf.executing_eagerly())
        ):
            logging.info("tf_gc: %s: %s", self._params, traffic)
            logging.vlog(1, "tf_gc: schedule:\n%s", schedule)
            for bucket in schedule.buckets:
                if caution := bucket.reducer.caution:
                    logging.info("tf_gc: %s: %s", ", ".join(bucket.variables), caution)
        if watch:
            arguments = (weakref.ref(self),)
            thread = threading.Thread(target=_log_verdicts, args=arguments, name="tf_gc verdict")
            thread.daemon = True
            thread.start()

    def schedule(self) -> Schedule | None:
        """Returns how the gradients of a step are sent; `None` before one was built."""
        schedules = []
        for steps in self._current():
            full, compressed, *_ = self._counts(steps)
            schedule = self._way(steps).schedule
            schedules.append(dataclasses.replace(schedule, steps=(full, compressed)))
        return together(schedules) if schedules else None

    def traffic(self) -> Traffic | None:
        """Returns what a step sends; `None` before one was built."""
        return self._traffic(self._current())

    def report(self) -> Report:
        """Returns what is known of the latest step."""
        current = self._current()
        return self._report(current, current)

    def _current(self) -> list[StreamSteps]:
        """Returns the streams of which a step is made now: all but those that are overdue.

        The recorder numbers the steps of all streams. One is overdue if its last step was
        `_OVERDUE` times as long ago as the one before that was before it.
        """
        with self._lock:
            # What is known of the last ones stays when their model has ended.
            living = [*filter(StreamSteps.is_alive, self._streams)]
            self._streams = living or self._streams
            numbers = {steps: self._counts(steps)[3:] for steps in self._streams}
        now = max((latest for latest, _ in numbers.values()), default=0)
        # One that was only built counts, too.
        return [
            s for s, (n, before) in numbers.items() if not n or now - n <= _OVERDUE * (n - before)
        ]

    def _way(self, steps: StreamSteps) -> Built:
        """Returns how the latest step was built; while a warm-up may last, how later ones are."""
        full, compressed, latest, *_ = self._counts(steps)
        of_compressed = steps.built.get(True)
        if of_compressed and (
            not self._tries or (not compressed and (not full or of_compressed.schedule.warm_up))
        ):
            return of_compressed.now()
        return (steps.built.get(bool(latest)) or list(steps.built.values())[-1]).now()

    def _traffic(self, streams: Sequence[StreamSteps]) -> Traffic | None:
        traffics = []
        for steps in streams:
            built = self._way(steps)
            waits = built.schedule.warm_up and not self._counts(steps)[1]
            traffics.append(dataclasses.replace(built.traffic, after_warm_up=waits))
        return functools.reduce(operator.add, traffics) if traffics else None

    def log_verdicts(self) -> bool:
        """Logs the verdicts that are due, and returns whether there are more to come."""
        with self._lock:
            waiting = {*filter(StreamSteps.is_alive, self._to_judge)}
            self._to_judge &= waiting
        current = self._current()
        # The streams of a step have one verdict, and those of earlier steps theirs.
        for streams in [current, *([steps] for steps in waiting - set(current))]:
            mine = [steps for steps in streams if steps in waiting and self._lasts(steps)]
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

    def _lasts(self, steps: StreamSteps) -> bool:
        """Whether a stream has taken part for as many steps, of all streams, as a verdict takes."""
        full, compressed, _, number, before = self._counts(steps)
        return (full + compressed) * (number - before) >= verdict.STEPS

    def _counts(self, steps: StreamSteps) -> list[int]:
        """Returns what `Series.STEPS` has of a stream; zeros before its first step."""
        return self.recorder.read(steps.number, Series.STEPS).astype(int).tolist()

    def _report(self, streams: Sequence[StreamSteps], timed: Sequence[StreamSteps]) -> Report:
        """Returns the report of a step; times are of the largest of some of its streams."""
        report = Report(self._params, self._traffic(streams), replicas=self.replicas)
        if not timed or not any(steps.elements for steps in streams):
            return report
        main = max(timed, key=lambda steps: steps.elements)
        full_steps, compressed_steps, *_ = self._counts(main)
        buckets: list[Bucket] = []
        sizes: list[int | None] = []
        parts: list[Array | None] = []
        measured = 0
        for steps in streams:
            built = self._way(steps)
            runs = self._counts(steps)[1] > 0
            number, of_stream = self._measured(steps, built.schedule.buckets)
            measured = number if steps is main else measured
            parts += of_stream or [None] * len(built.schedule.buckets)
            buckets += built.schedule.buckets
            sizes += [size if runs else None for size in built.sizes]
        densities = [
            None if part is None else min(part[-1] / bucket.elements, 1.0)
            for bucket, part in zip(buckets, parts, strict=True)
        ]
        known = [(d, b.elements) for d, b in zip(densities, buckets, strict=True) if d is not None]
        read = functools.partial(self.recorder.read, main.number)
        # Otherwise something was compressed in these steps, too.
        warm_up_is_full = all(bucket.warm_up for bucket in self._way(main).schedule.buckets)
        full = read(Series.FULL_PRECISION).tolist() if warm_up_is_full else []
        return dataclasses.replace(
            report,
            buckets=tuple(
                BucketReport(
                    bucket.variables,
                    bucket.elements,
                    bucket.dtype.name,
                    codec=bucket.reducer.name,
                    plan=bucket.reducer.plan,
                    wire=bucket.reducer.wire,
                    sent_bytes=sizes[i],
                    density=densities[i],
                )
                for i, bucket in enumerate(buckets)
            ),
            full_precision=StepTime.of(full),
            compressed=StepTime.of(read(Series.COMPRESSED).tolist()),
            comparison=Comparison.of(full, read(Series.FIRST).tolist()),
            warm_up_steps=full_steps,
            compressed_steps=compressed_steps,
            measured_step=measured,
            density=float(sum(d * n for d, n in known) / sum(n for _, n in known))
            if known
            else None,
            trial=self._trial(main) if self._tries else None,
            **_residual_ratios(buckets, parts),
        )

    def _measured(self, steps: StreamSteps, buckets: Sequence[Bucket]) -> tuple[int, list[Array]]:
        """Returns the latest compressed step that was measured, and `_measure` of buckets."""
        kept = self.recorder.read(steps.number, Series.MEASURED)
        if not kept.size or not buckets:
            return 0, []
        counts = [2 * len(bucket.variables) + 1 for bucket in buckets]
        return int(kept[0]), np.split(kept[1:], np.cumsum(counts)[:-1])

    def _trial(self, steps: StreamSteps) -> TrialReport:
        full, compressed, latest, *_ = self._counts(steps)
        current = WAYS[latest] if full + compressed else None
        kept = self.recorder.read(steps.number, Series.TRIAL)
        if not kept.size or kept[0] < 0:  # it has not ended, or began anew
            return TrialReport(current=current)
        chosen, times = WAYS[int(kept[0])], kept[1:]
        seconds = np.where(times < np.iinfo(np.int64).max, times * 1e-9, np.nan)
        return TrialReport(tuple(seconds.tolist()), chosen, current)


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
        residuals = [residual.read_value() for residual in replica.residuals]
        # `l2_loss` makes no copy of the tensor.
        halves = [tf.nn.l2_loss(tensor) for tensor in (*gradients, *residuals)]
        norms = 2 * tf.stack(halves + [tf.zeros([])] * (2 * len(gradients) - len(halves)))
        sent = reduction.count_sent()
    with tf.device("CPU:0"):
        return tf.concat([tf.cast(norms, tf.float64), tf.cast(sent, tf.float64)[None]], axis=0)


def _residual_ratios(buckets: Sequence[Bucket], parts: Sequence[Array | None]) -> dict[str, Any]:
    squares: dict[str, Array] = {}  # of the norms of a gradient and of its residual
    for bucket, part in zip(buckets, parts, strict=True):
        if part is None or not bucket.reducer.keeps_residuals:
            continue
        for name, pair in zip(bucket.variables, part[:-1].reshape(2, -1).T, strict=True):
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
