"""What the steps of a strategy measure of themselves, for `strategy.report()` and the verdict."""

import dataclasses
import math
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from absl import logging

from tf_gc.network.traffic import Traffic
from tf_gc.observe import verdict, verdict_log
from tf_gc.observe.accounting import Pairs
from tf_gc.observe.log import log_visibly
from tf_gc.observe.report import BucketReport, Comparison, Report, StepTime, TrialReport
from tf_gc.ops import Recorder
from tf_gc.ops.recorder import NO_CANDIDATE
from tf_gc.params import Auto, CompressionParams
from tf_gc.params.auto import WAYS
from tf_gc.reducers.reducer import Reduction
from tf_gc.schedule import Schedule
from tf_gc.state.stream import Stream

# How many numbers are measured of a bucket, besides norms.
_NUMBERS = 3


@dataclasses.dataclass(frozen=True)
class Built:
    """What is known of a reduction when it is built.

    Attributes:
      schedule: what is sent how.
      traffic: what a replica sends in a step, or at most sends.
      sizes: what it sends for each bucket, `None` where only the step knows that.
    """

    schedule: Schedule
    traffic: Traffic
    sizes: tuple[int | None, ...]


class Measurement:
    """Records the steps of a strategy, and logs the verdict.

    Attributes:
      recorder: what the steps have recorded.
      logs_verdicts: whether this worker logs them; the steps of the others take as long as its own.
    """

    def __init__(self, params: CompressionParams) -> None:
        self._params = params
        # Reentrant: a model may be collected, and forgotten, in the middle of anything.
        self._lock = threading.RLock()
        self._numbers: dict[Any, int] = {}
        self._next = 0
        # By the number of the model, and whether the step compresses.
        self._reductions: dict[int, dict[bool, Built]] = {}
        self._latest: int | None = None
        self._to_judge: set[int] = set()
        # Those with a verdict that is not the last one.
        self._told: set[int] = set()
        self._tries = isinstance(params, Auto)
        self.replicas: int | None = None
        self.recorder = Recorder()
        self.logs_verdicts = True

    def note_step(self, number: int, gradient: tf.Tensor, compressed: bool) -> tf.Tensor:
        """Records a step; returns whether density and residuals are to be measured in it.

        Args:
          number: the model's.
          gradient: the first one to be summed. The time is that at which it is there, so that the
            iterations of a loop record one by one.
          compressed: whether the step compresses, or sums in full precision.
        """
        candidate = int(compressed) if self._tries else NO_CANDIDATE
        with tf.control_dependencies([gradient]):
            return self.recorder.note_step(number, compressed, candidate)

    def measure_if(
        self, wanted: tf.Tensor, number: int, reductions: Sequence[Reduction]
    ) -> tf.Tensor:
        """Measures density and residuals in the steps in which that is wanted.

        Args:
          wanted: what `note_step` returned, a bool scalar.
          number: the model's.
          reductions: those of the buckets.

        Returns:
          A bool scalar that is there when that has been done.
        """

        def keep() -> tf.Tensor:
            values = [_measure(reduction) for reduction in reductions]
            with tf.device("CPU:0"):
                kept = self.recorder.keep(number, tf.concat(values, axis=0))
                with tf.control_dependencies([] if kept is None else [kept]):
                    return tf.constant(True)

        return tf.cond(wanted, keep, lambda: tf.constant(False))

    def built(
        self,
        number: int,
        schedule: Schedule,
        traffic: Traffic,
        reductions: Sequence[Reduction],
        compressed: bool = True,
    ) -> None:
        """Notes what a step sends; called while it is built."""
        sizes = [reduction.sent_bytes for reduction in reductions]
        known = tuple(size if isinstance(size, int) else None for size in sizes)
        with self._lock:
            if number not in self._reductions:
                self._to_judge.add(number)
            ways = self._reductions.setdefault(number, {})
            ways[compressed] = Built(schedule, traffic, known)
            before, self._latest = self._latest, number
            if before is not None and before not in (number, *self._numbers.values()):
                self._drop(before)
            judge = self.logs_verdicts and number in self._to_judge
        if judge:
            verdict_log.watch(self)

    def current(self) -> Built | None:
        """Returns the way that the latest step of the most recently built reduction took.

        `None` before the first step, and without a trial.
        """
        with self._lock:
            number = self._latest
            if number is None or not self._tries:
                return None
            return self._reductions[number].get(self.recorder.candidate(number) == 1)

    def steps(self, schedule: Schedule) -> tuple[int, int] | None:
        """Returns how many steps were in full precision, and how many compressed.

        `None` if another reduction was built since.
        """
        with self._lock:
            number = self._latest
            ways = {} if number is None else self._reductions[number]
            if number is None or all(way.schedule is not schedule for way in ways.values()):
                return None
        full, compressed = (self.recorder.steps(number, compressed=c) for c in (False, True))
        return full, compressed

    def report(self, traffic: Traffic | None) -> Report:
        """Returns what is known of the most recently built reduction.

        Args:
          traffic: what its latest step has sent.
        """
        with self._lock:
            number = self._latest
        if number is None:
            return Report(self._params, traffic, replicas=self.replicas)
        return dataclasses.replace(self._report(number), traffic=traffic)

    def log_verdicts(self) -> bool:
        """Logs the verdicts that are due, and returns whether there are more to come."""
        with self._lock:
            waiting = list(self._to_judge)
        for number in waiting:
            judged = verdict.judge(self._report(number))
            if judged is None or (number in self._told and not judged.is_last):
                continue
            if judged.is_last:
                self._to_judge.discard(number)
            else:
                self._told.add(number)
            if judged.level == logging.INFO:
                log_visibly(judged.text)
            else:
                logging.log(judged.level, "%s", judged.text)
        return bool(self._to_judge)

    def _report(self, number: int) -> Report:
        with self._lock:
            ways = self._reductions.get(number)
            if ways is None:
                return Report(self._params)
            candidate = self.recorder.candidate(number)
            reduction = ways.get(candidate == 1) or list(ways.values())[-1]
        buckets = reduction.schedule.buckets
        counts = [2 * len(bucket.variables) + _NUMBERS for bucket in buckets]
        step, values = self.recorder.measured(number, sum(counts))
        parts = np.split(values, np.cumsum(counts)[:-1]) if step else []
        compressed_steps = self.recorder.steps(number, compressed=True)
        sizes = list(reduction.sizes)
        traffic = reduction.traffic
        if None in sizes and parts:
            measured = [int(part[-2]) for part in parts]
            sizes = list(measured)
            traffic = dataclasses.replace(
                traffic,
                sent_bytes=traffic.bypassed_bytes + sum(measured),
                stock_bytes=traffic.stock_bytes + sum(int(part[-1]) for part in parts),
                at_most=False,
                without_rows=False,
            )
        sent = [float(part[-3]) for part in parts]
        densities = [
            min(count / bucket.elements, 1.0) for bucket, count in zip(buckets, sent, strict=False)
        ]
        full = self.recorder.intervals(number, compressed=False).tolist()
        if not all(bucket.warm_up for bucket in buckets):
            full = []  # in these steps, too, something was compressed
        return Report(
            compression_params=self._params,
            traffic=traffic,
            buckets=tuple(
                BucketReport.of(
                    bucket,
                    sizes[i] if compressed_steps else None,
                    densities[i] if parts else None,
                )
                for i, bucket in enumerate(buckets)
            ),
            full_precision=StepTime.of(full),
            compressed=StepTime.of(self.recorder.intervals(number, compressed=True).tolist()),
            comparison=Comparison.of(full, self.recorder.first_intervals(number).tolist()),
            warm_up_steps=self.recorder.steps(number, compressed=False),
            compressed_steps=compressed_steps,
            measured_step=step,
            density=_mean(densities, [bucket.elements for bucket in buckets]) if parts else None,
            trial=self._trial(number, candidate),
            replicas=self.replicas,
            **_residual_ratios(reduction.schedule, parts),
        )

    def _trial(self, number: int, candidate: int) -> TrialReport | None:
        """Returns what a trial says; `None` without one."""
        if not self._tries:
            return None
        chosen, times = self.recorder.trial(number, len(WAYS))
        return TrialReport(
            seconds=tuple(times.tolist()),
            chosen=None if chosen == NO_CANDIDATE else WAYS[chosen],
            current=None if candidate == NO_CANDIDATE else WAYS[candidate],
        )

    def _drop(self, number: int) -> None:
        del self._reductions[number]
        self.recorder.forget(number)

    def number_of(self, schedule: Schedule, pairs: Pairs, stream: Stream) -> int:
        """Returns the number of the stream and model that gradients belong to, always the same."""
        variable = pairs[schedule.compressed[0]][1]
        key = (id(stream), id(variable), tuple(bucket.variables for bucket in schedule.buckets))
        with self._lock:
            if key not in self._numbers:
                self._numbers[key] = self._next
                self._next += 1
                for ends in (stream, variable):
                    weakref.finalize(ends, _forget, weakref.ref(self), key).atexit = False
            return self._numbers[key]


def _measure(reduction: Reduction) -> tf.Tensor:
    """Returns the squared norms of gradients and residuals, and `_NUMBERS` numbers.

    float64 [2 * variables + _NUMBERS], on the host. What keeps no residuals has norms of zero. The
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


def _mean(values: Sequence[float], weights: Sequence[int]) -> float:
    return math.fsum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)


def _residual_ratios(
    schedule: Schedule, parts: Sequence[npt.NDArray[np.float64]]
) -> dict[str, Any]:
    """Returns the fields of a report that compare residuals with gradients."""
    ratios: dict[str, float] = {}
    gradients = residuals = 0.0
    for bucket, part in zip(schedule.buckets if parts else (), parts, strict=True):
        if not bucket.reducer.keeps_residuals:
            continue
        of_gradients, of_residuals = np.split(part[:-_NUMBERS], 2)
        for name, gradient, residual in zip(
            bucket.variables, of_gradients, of_residuals, strict=True
        ):
            key, number = name, 1
            while key in ratios:
                number += 1
                key = f"{name} ({number})"
            ratios[key] = math.sqrt(residual / gradient) if gradient else math.nan
            gradients, residuals = gradients + gradient, residuals + residual
    return {
        "residual_ratio": math.sqrt(residuals / gradients) if gradients else None,
        "residual_ratios": ratios,
    }


def _forget(measurement: "weakref.ref[Measurement]", key: Any) -> None:
    alive = measurement()
    if alive is None:
        return
    with alive._lock:
        if key not in alive._numbers:  # the stream and the variable end one by one
            return
        number = alive._numbers.pop(key)
        alive._to_judge.discard(number)
        if number in alive._reductions and number != alive._latest:
            alive._drop(number)
