"""The measurements of a strategy's steps: the value of `strategy.report()`."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from tf_gc.network.traffic import ALONE, Traffic
from tf_gc.params import CompressionParams
from tf_gc.params.composed import WAYS

# A median's confidence interval. Fewer than six numbers have none.
_CONFIDENCE = 0.95

# If steps are faster by less than this even at best, compression does not pay.
_WORTH_IT = 1.05


@dataclasses.dataclass(frozen=True)
class StepTime:
    """The time from one sum of gradients to the next, in seconds.

    Evaluation, or anything else between two steps, makes single intervals longer, which hardly
    changes the median. With gradient accumulation an interval has all batches that are accumulated.

    Attributes:
      median: the median of the latest intervals, of at most 256.
      low: the lower end of the median's 95% confidence interval, from the order statistics.
      high: its upper end.
      steps: how many intervals these are.
    """

    median: float
    low: float
    high: float
    steps: int

    @classmethod
    def of(cls, intervals: Sequence[float]) -> "StepTime | None":
        """Returns what intervals, in seconds, say; `None` if there are fewer than six."""
        count = len(intervals)
        tail, outside = 0, 0.5**count
        while outside <= (1 - _CONFIDENCE) / 2 and tail < count / 2:
            tail += 1
            outside += math.comb(count, tail) * 0.5**count
        if tail == 0:
            return None
        ordered = sorted(intervals)
        middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
        return cls(middle, ordered[tail - 1], ordered[count - tail], count)

    def __str__(self) -> str:
        return f"{duration(self.median)} (median of {self.steps} steps)"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The steps right before and right after the end of the warm-up, equally many.

    Other influences on the time of steps, such as other programs, are most alike there.

    Attributes:
      full_precision: the time of the last steps in full precision, which the stock ops sum.
      compressed: the time of the first compressed steps.
    """

    full_precision: StepTime
    compressed: StepTime

    # How many intervals of each kind, at most.
    LONGEST: ClassVar[int] = 30

    @classmethod
    def of(cls, before: Sequence[float], after: Sequence[float]) -> "Comparison | None":
        """Compares intervals, in seconds, before and after the end of the warm-up.

        `None` if there are fewer than six on either side.
        """
        length = min(len(before), cls.LONGEST)
        full = StepTime.of(before[len(before) - length :])
        compressed = StepTime.of(after[:length]) if len(after) >= length else None
        return None if full is None or compressed is None else cls(full, compressed)

    @property
    def ratio(self) -> float:
        """How many times as long a step in full precision takes. Above 1, compression pays."""
        return self.full_precision.median / self.compressed.median

    @property
    def low(self) -> float:
        """The least ratio that the confidence intervals of both medians allow."""
        return self.full_precision.low / self.compressed.high

    @property
    def high(self) -> float:
        """The largest ratio that the confidence intervals of both medians allow."""
        return self.full_precision.high / self.compressed.low

    @property
    def shows_nothing(self) -> bool:
        """Whether compression may pay, or not, as far as these steps show."""
        return self.low <= 1 and self.high >= _WORTH_IT

    def __str__(self) -> str:
        return (
            f"{duration(self.compressed.median)} compressed and "
            f"{duration(self.full_precision.median)} in full precision, ratio {self.ratio:.2f} "
            f"(medians of {self.compressed.steps} steps after and before the end of the warm-up, "
            f"95% confidence {self.low:.2f} to {self.high:.2f})"
        )


@dataclasses.dataclass(frozen=True)
class TrialReport:
    """The findings of `tf_gc.Auto`.

    Attributes:
      seconds: the time of a step in full precision, and of a compressed one: the median of at most
        12 steps, on the slowest worker; NaN if the trial began in another process. Empty before the
        end of the trial, and after a restart.
      chosen: "full precision" or "compressed"; `None` likewise.
      current: the way that the latest step took; `None` before the first step.
    """

    seconds: tuple[float, ...] = ()
    chosen: str | None = None
    current: str | None = None

    def __str__(self) -> str:
        if self.chosen is None:
            return f"the latest step: {self.current or 'before the trial'}"
        return f"chosen: {self.chosen}; {self.times}"

    @property
    def times(self) -> str:
        """The time of a step in each way, in words."""
        return ", ".join(
            f"{name} {'not measured' if math.isnan(seconds) else duration(seconds)}"
            for name, seconds in zip(WAYS, self.seconds, strict=False)
        )


@dataclasses.dataclass(frozen=True)
class BucketReport:
    """A bucket: gradients that travel together.

    Attributes:
      variables: the names of their variables.
      elements: how many elements they have together.
      dtype: their dtype.
      codec: what makes the messages.
      plan: who sends what to whom.
      wire: how codes travel.
      sent_bytes: what a replica sends for it in a step; `None` until a step has shown it.
      density: the share of its codes that do not stand for zero, in the latest step that was
        measured; `None` until then. A codec of one bit has no zero.
    """

    variables: tuple[str, ...]
    elements: int
    dtype: str
    codec: str
    plan: str
    wire: str
    sent_bytes: int | None
    density: float | None

    def __str__(self) -> str:
        sent = "" if self.sent_bytes is None else f"{self.sent_bytes:,} bytes a step, "
        density = "" if self.density is None else f"{percent(self.density)} not zero, "
        return (
            f"{sent}{density}{self.elements:,} elements of {self.dtype} by {self.codec}, "
            f"{self.plan}, {self.wire}: {', '.join(self.variables)}"
        )


@dataclasses.dataclass(frozen=True)
class Report:
    """The measurements of this worker's steps; `print` shows them.

    It is about the most recently built reduction of gradients. Density and residuals are measured
    in one step in a hundred (or as often as `tf_gc.keras.CompressionMonitor` says), on this
    worker's first replica; in a hierarchy for the host's sum.

    Attributes:
      compression_params: what is compressed, and how.
      traffic: what a replica sends in a step; `None` until a step with compression was built.
      buckets: the gradients that travel together.
      full_precision: the time of the steps of the warm-up, which the stock ops sum; `None` if this
        run had fewer than seven of them.
      compressed: the time of compressed steps; `None` before the seventh.
      comparison: both, around the end of the warm-up; `None` if there are too few steps.
      warm_up_steps: how many steps of this run were in full precision.
      compressed_steps: how many were compressed.
      trial: what `tf_gc.Auto` has found; `None` for other params.
      replicas: how many train together, on all hosts; `None` before it is known.
      measured_step: the latest compressed step, from 1 on, whose density and residuals were
        measured; 0 if there is none.
      density: the share of all codes that do not stand for zero; `None` before the first compressed
        step.
      residual_ratio: the norm of the residuals divided by the gradients' norm, both of all
        compressed variables; `None` likewise, and where all gradients are zero.
      residual_ratios: the same by the name of the variable.
    """

    compression_params: CompressionParams
    traffic: Traffic | None = None
    buckets: tuple[BucketReport, ...] = ()
    full_precision: StepTime | None = None
    compressed: StepTime | None = None
    comparison: Comparison | None = None
    warm_up_steps: int = 0
    compressed_steps: int = 0
    trial: TrialReport | None = None
    replicas: int | None = None
    measured_step: int = 0
    density: float | None = None
    residual_ratio: float | None = None
    residual_ratios: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """The ratio of `comparison`: above 1, compression pays. `None` if there is none."""
        return None if self.comparison is None else self.comparison.ratio

    def __str__(self) -> str:
        lines = [f"compression: {self.compression_params}", *self._steps()]
        if self.traffic is not None and self.replicas != 1:
            lines.append(f"bytes: {self.traffic}")
        if self.measured_step:
            lines.append(f"measured in compressed step {self.measured_step}:")
            if self.density is not None:
                lines.append(f"  {percent(self.density)} of the codes are not zero")
            if self.residual_ratio is not None:
                lines.append(f"  norm of residuals / norm of gradients: {self.residual_ratio:.3g}")
            lines += [f"    {name}: {ratio:.3g}" for name, ratio in self.residual_ratios.items()]
        lines += [f"bucket {number}: {bucket}" for number, bucket in enumerate(self.buckets)]
        return "\n".join(lines)

    __repr__ = __str__  # which notebooks show

    def _steps(self) -> list[str]:
        if not self.compression_params.specs():
            return ["nothing is compressed, as compression_params says"]
        if self.replicas == 1:
            return [ALONE]
        if self.traffic is not None and not self.buckets and self.trial is None:
            return ["nothing is compressed: every gradient is too small or excluded"]
        if not (self.warm_up_steps or self.compressed_steps):
            return ["no step has been compressed so far"]
        lines = [
            f"steps: {self.warm_up_steps} in full precision, {self.compressed_steps} compressed"
        ]
        if not self.compressed_steps and self.trial is None:
            lines[0] += ": the warm-up has not ended"
        if self.trial is not None:
            lines.append(f"trial: {self.trial}")
        if self.compressed is not None:
            lines.append(f"time of a compressed step: {self.compressed}")
        if self.full_precision is not None:
            lines.append(f"time of a step in full precision: {self.full_precision}")
        if self.comparison is not None:
            lines.append(f"at the end of the warm-up: {self.comparison}")
        return lines


def percent(share: float) -> str:
    """Returns a share in percent, with two significant digits below 10%."""
    return f"{share:.1%}" if share >= 0.1 or share == 0 else f"{100 * share:.2g}%"


def duration(seconds: float) -> str:
    """Returns a time in words, with three significant digits."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
