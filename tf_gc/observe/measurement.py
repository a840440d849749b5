"""Measurements of the steps of a strategy, for `strategy.report()` and the verdict."""

import dataclasses
import functools
import itertools
import math
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from absl import logging

from tf_gc.network.traffic import Traffic
from tf_gc.observe import verdict
from tf_gc.observe.log import log_visibly
from tf_gc.observe.report import BucketReport, Comparison, Report, StepTime, TrialReport
from tf_gc.ops.recorder import Recorder, Series
from tf_gc.params import Auto, CompressionParams
from tf_gc.params.composed import WAYS
from tf_gc.reducers.reducer import Reduction
from tf_gc.schedule import Bucket, Schedule

# How many numbers are measured of a bucket, besides norms.
_NUMBERS = 3
Array = npt.NDArray[np.float64]

# Seconds between two looks for a verdict: at first, and at most.
_FIRST, _LAST = 0.25, 2.0


@dataclasses.dataclass(frozen=True)
class Built:
    """How steps of a model were built. `sizes` has the bytes of each bucket that are known."""

    schedule: Schedule
    traffic: Traffic
    sizes: tuple[int | None, ...]


class Model:
    """Gradients that are reduced together, of one stream."""

    def __init__(self, recorder: Recorder, number: int, ends: Sequence[Any]) -> None:
        self.number = number  # for the recorder, which forgets it when the model is collected
        # The stream, and the first variable whose gradient is compressed.
        self.ends = [weakref.ref(each) for each in ends]
        self.built: dict[bool, Built] = {}  # steps in each way, by whether they compress
        self.told = False  # whether a preliminary verdict on it was logged
        weakref.finalize(self, recorder.forget, number).atexit = False


class Measurement:
    """Records the steps of a strategy, and logs the verdict."""

    def __init__(self, params: CompressionParams) -> None:
        self._params = params
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._latest: Model | None = None  # to be built
        self._to_judge: weakref.WeakSet[Model] = weakref.WeakSet()
        self._is_watched = False  # by a thread that logs verdicts
        self._tries = isinstance(params, Auto)
        self.replicas: int | None = None
        self.recorder = Recorder()
        self.logs_verdicts = True  # or another worker does, whose steps take as long

    def model_of(self, schedule: Schedule, notes: dict[Any, Any], *ends: Any) -> Model:
        """Returns the model of gradients; always the same, kept in the notes of `ends`."""
        key = ("model", *(bucket.variables for bucket in schedule.buckets))
        with self._lock:
            if key not in notes:
                notes[key] = Model(self.recorder, next(self._numbers), ends)
            return notes[key]

    def note_step(self, model: Model, gradient: tf.Tensor, compressed: bool) -> tf.Tensor:
        """Records a step; returns whether density and residuals are to be measured in it.

        The time is that at which the first gradient to be summed is there, so that the iterations
        of a loop record one by one.
        """
        with tf.control_dependencies([gradient]):
            return self.recorder.note_step(model.number, compressed)

    def measure_if(self, wanted: tf.Tensor, model: Model, reductions: Sequence[Reduction]) -> None:
        """Measures density and residuals of buckets where `note_step` has returned `wanted`."""

        def keep() -> tf.Tensor:
            values = [_measure(reduction) for reduction in reductions]
            with tf.device("CPU:0"):
                self.recorder.keep(model.number, tf.concat(values, axis=0))
            return wanted

        tf.cond(wanted, keep, lambda: wanted)

    def built(
        self,
        model: Model,
        schedule: Schedule,
        traffic: Traffic,
        reductions: Sequence[Reduction],
        compressed: bool = True,
    ) -> None:
        """Notes what a step sends; called while it is built."""
        sizes = [reduction.sent_bytes for reduction in reductions]
        known = tuple(size if isinstance(size, int) else None for size in sizes)
        with self._lock:
            if not model.built:
                self._to_judge.add(model)
            model.built[compressed] = Built(schedule, traffic, known)
            self._latest = model
            watch = self.logs_verdicts and model in self._to_judge and not self._is_watched
            self._is_watched |= watch
        if watch:
            arguments = (weakref.ref(self),)
            thread = threading.Thread(target=_log_verdicts, args=arguments, name="tf_gc verdict")
            thread.daemon = True
            thread.start()

    def current(self) -> Built | None:
        """Returns how the latest step of the most recently built model was built.

        `None` without a trial. While a warm-up may last, it is how compressed steps are built.
        """
        model = self._latest
        return self._built(model) if model is not None and self._tries else None

    def _built(self, model: Model) -> Built | None:
        full, compressed, latest = self._steps(model)
        of_compressed = model.built.get(True)
        if of_compressed and not compressed and (not full or of_compressed.schedule.warm_up):
            return of_compressed
        return model.built.get(latest)

    def steps(self, schedule: Schedule) -> tuple[int, int] | None:
        """Returns how many steps were in full precision, and how many compressed.

        `None` if another model was built since.
        """
        model = self._latest
        if model is None or all(way.schedule is not schedule for way in model.built.values()):
            return None
        return self._steps(model)[:2]

    def report(self, traffic: Traffic | None) -> Report:
        """Returns what is known of the latest model to be built, and of its latest step."""
        model = self._latest
        if model is None:
            return Report(self._params, traffic, replicas=self.replicas)
        return dataclasses.replace(self._report(model), traffic=traffic)

    def log_verdicts(self) -> bool:
        """Logs the verdicts that are due, and returns whether there are more to come."""
        with self._lock:
            for model in [m for m in self._to_judge if any(end() is None for end in m.ends)]:
                self._to_judge.discard(model)
            waiting = list(self._to_judge)
        for model in waiting:
            judged = verdict.judge(self._report(model))
            if judged is None or (model.told and not judged.is_last):
                continue
            model.told = True
            if judged.is_last:
                self._to_judge.discard(model)
            if judged.level == logging.INFO:
                log_visibly(judged.text)
            else:
                logging.log(judged.level, "%s", judged.text)
        with self._lock:
            self._is_watched = bool(self._to_judge)
            return self._is_watched

    def _steps(self, model: Model) -> tuple[int, int, bool]:
        full, compressed, latest = map(int, self.recorder.read(model.number, Series.STEPS))
        return full, compressed, bool(latest)

    def _report(self, model: Model) -> Report:
        full_steps, compressed_steps, _ = self._steps(model)
        built = self._built(model) or list(model.built.values())[-1]
        buckets, traffic, sizes = built.schedule.buckets, built.traffic, list(built.sizes)
        step, parts = self._measured(model, buckets)
        if None in sizes and parts:
            sent, stock = (sum(int(part[i]) for part in parts) for i in (-2, -1))
            sizes = [int(part[-2]) for part in parts]
            traffic = traffic.measured(sent, stock)
        elements = [bucket.elements for bucket in buckets]
        densities = [min(part[-3] / n, 1.0) for part, n in zip(parts, elements, strict=False)]
        read = functools.partial(self.recorder.read, model.number)
        # Otherwise something was compressed in these steps, too.
        warm_up_is_full = all(bucket.warm_up for bucket in buckets)
        full = read(Series.FULL_PRECISION).tolist() if warm_up_is_full else []
        return Report(
            compression_params=self._params,
            traffic=traffic,
            buckets=tuple(
                BucketReport(
                    bucket.variables,
                    bucket.elements,
                    bucket.dtype.name,
                    codec=bucket.reducer.name,
                    plan=bucket.reducer.plan,
                    wire=bucket.reducer.wire,
                    sent_bytes=sizes[i] if compressed_steps else None,
                    density=densities[i] if parts else None,
                )
                for i, bucket in enumerate(buckets)
            ),
            full_precision=StepTime.of(full),
            compressed=StepTime.of(read(Series.COMPRESSED).tolist()),
            comparison=Comparison.of(full, read(Series.FIRST).tolist()),
            warm_up_steps=full_steps,
            compressed_steps=compressed_steps,
            measured_step=step,
            density=float(np.average(densities, weights=elements)) if parts else None,
            trial=self._trial(model) if self._tries else None,
            replicas=self.replicas,
            **_residual_ratios(buckets, parts),
        )

    def _measured(self, model: Model, buckets: Sequence[Bucket]) -> tuple[int, list[Array]]:
        """Returns the latest compressed step that was measured, and `_measure` of buckets."""
        kept = self.recorder.read(model.number, Series.MEASURED)
        if not kept.size or not buckets:
            return 0, []
        counts = [2 * len(bucket.variables) + _NUMBERS for bucket in buckets]
        return int(kept[0]), np.split(kept[1:], np.cumsum(counts)[:-1])

    def _trial(self, model: Model) -> TrialReport:
        full, compressed, latest = self._steps(model)
        current = WAYS[latest] if full + compressed else None
        kept = self.recorder.read(model.number, Series.TRIAL)
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
    """Returns the squared norms of gradients and residuals, and `_NUMBERS` numbers.

    float64 [2 * variables + _NUMBERS], on the host. Without residuals their norms are zero. The
    numbers are the elements sent, the bytes sent, and the bytes that the stock ops would send as
    far as only the step knows them.
    """
    replica = reduction.measured
    with tf.device(replica.device):
        values = [getattr(gradient, "values", gradient) for gradient in replica.gradients]
        gradients = [tf.cast(value, tf.float32) for value in values]
        residuals = [residual.read_value() for residual in replica.residuals]
        # `l2_loss` makes no copy of the tensor.
        norms = [2 * tf.nn.l2_loss(tensor) for tensor in (*gradients, *residuals)]
        norms = tf.stack(norms + [tf.zeros([])] * (2 * len(gradients) - len(norms)))
        sent = reduction.count_sent()
    with tf.device("CPU:0"):
        stock = 0 if reduction.stock_bytes is None else reduction.stock_bytes
        numbers = [tf.cast(number, tf.float64) for number in (sent, reduction.sent_bytes, stock)]
        return tf.concat([tf.cast(norms, tf.float64), tf.stack(numbers)], axis=0)


def _residual_ratios(buckets: Sequence[Bucket], parts: Sequence[Array]) -> dict[str, Any]:
    squares: dict[str, Array] = {}  # of the norms of a gradient and of its residual
    for bucket, part in zip(buckets, parts, strict=False):
        if not bucket.reducer.keeps_residuals:
            continue
        for name, pair in zip(bucket.variables, part[:-_NUMBERS].reshape(2, -1).T, strict=True):
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
