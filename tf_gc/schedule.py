"""The schedule: which gradients travel together, and how each bucket is sent."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_gc.network.traffic import ALONE
from tf_gc.params import CompressionParams, Gradient, Uncompressed
from tf_gc.reducers.reducer import Sender, Spec

# Bytes of gradient in a bucket, unless the user gives a size. The first bucket is on its way early
# and its codes stay in the cache; an op's fixed cost does not matter.
_DEFAULT_BYTES = 4 << 20

# Gradients that fit into a bucket this many times have buckets of their own. TensorFlow's executor
# runs the op that became ready last first. So gradients of biases, which nothing else waits for,
# come at the end, and a large one in the same bucket would wait for them.
_SMALL = 16


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Gradients of one dtype that are summed together.

    Attributes:
      indices: their positions in the list of gradients.
      gradients: what is known of them.
      reducer: a `tf_gc.reducers.reducer.Reducer`, or under parameter servers a `Push`.
      warm_up: whether it is in full precision in the first steps.
    """

    indices: tuple[int, ...]
    gradients: tuple[Gradient, ...]
    reducer: Any
    warm_up: bool

    @property
    def variables(self) -> tuple[str, ...]:
        """The paths of their variables."""
        return tuple(gradient.path for gradient in self.gradients)

    @property
    def dtype(self) -> tf.DType:
        """The dtype that they have in common."""
        return self.gradients[0].dtype

    @property
    def elements(self) -> int:
        """The number of elements that the gradients have together."""
        return sum(gradient.elements for gradient in self.gradients)

    def __str__(self) -> str:
        return (
            f"{self.elements:,} elements of {self.dtype.name} by {self.reducer}: "
            f"{', '.join(self.variables)}"
        )


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How each gradient is sent in a step. `print` shows it, a line for each bucket.

    Attributes:
      buckets: what is compressed, in the order in which backpropagation produces it.
      bypass: positions of the gradients that the stock ops sum, in full precision.
      uncompressed: which of them are gradients of the strategy's variables, and why.
      steps: how many steps of this run were in full precision and compressed, where known.
      alone: whether there is a single replica, for which the rest is empty.
    """

    buckets: tuple[Bucket, ...]
    bypass: tuple[int, ...]
    uncompressed: tuple[Uncompressed, ...]
    steps: tuple[int, int] | None = None
    alone: bool = False

    @property
    def warm_up(self) -> bool:
        """Whether anything is in full precision in the first steps only."""
        return any(bucket.warm_up for bucket in self.buckets)

    @property
    def in_warm_up(self) -> bool:
        """Whether no step of a schedule with a warm-up is known to have been compressed."""
        return self.warm_up and not (self.steps and self.steps[1])

    @property
    def compressed(self) -> list[int]:
        """The positions of the gradients that are compressed, in the order of the buckets."""
        return [index for bucket in self.buckets for index in bucket.indices]

    def why_uncompressed(self) -> list[str]:
        """Says why gradients are not compressed: for each reason how many, and whose."""
        paths: dict[str, list[str]] = {}
        for gradient in self.uncompressed:
            paths.setdefault(gradient.reason, []).append(gradient.path)
        return [f"{len(of)} {reason} ({', '.join(of)})" for reason, of in paths.items()]

    def __str__(self) -> str:
        if self.alone:
            return ALONE
        lines = [f"bucket {number}: {bucket}" for number, bucket in enumerate(self.buckets)]
        lines.append(f"in full precision: {len(self.bypass)} gradients")
        lines += [f"  {reason}" for reason in self.why_uncompressed()]
        warm = [number for number, bucket in enumerate(self.buckets) if bucket.warm_up]
        if warm:
            which = "" if len(warm) == len(self.buckets) else f" of buckets {warm}"
            verb = "are" if self.in_warm_up else "were"
            lines.append(f"the first steps{which} {verb} in full precision")
            if self.steps is not None:
                rest = "so far" if self.in_warm_up else "of this run; the warm-up has ended"
                lines[-1] += f": {self.steps[0]} {rest}"
        return "\n".join(lines)

    __repr__ = __str__  # which notebooks show


def together(schedules: Sequence[Schedule]) -> Schedule:
    """Returns the schedule of a step in which several streams of gradients are summed.

    Positions count on from one to the next; the steps are of the one that compressed least often.
    """
    first, *others = schedules
    if not others:
        return first
    buckets: list[Bucket] = []
    bypass: list[int] = []
    before = 0
    for schedule in schedules:
        for bucket in schedule.buckets:
            moved = tuple(before + i for i in bucket.indices)
            buckets.append(dataclasses.replace(bucket, indices=moved))
        bypass += [before + i for i in schedule.bypass]
        before += len(schedule.bypass) + len(schedule.compressed)
    steps = [schedule.steps for schedule in schedules if schedule.buckets and schedule.steps]
    return Schedule(
        tuple(buckets),
        tuple(bypass),
        tuple(gradient for schedule in schedules for gradient in schedule.uncompressed),
        min(steps, key=lambda each: each[1], default=None),
    )


def make_schedule(
    params: CompressionParams,
    gradients: Sequence[Gradient | Uncompressed | None],
    senders: Mapping[Spec, Sender | str],
    bucket_bytes: int = 0,
) -> Schedule:
    """Decides how each gradient is sent, given what is known of each or why it is not compressed.

    `None` is a value that is no gradient. `senders` has what sends the gradients of a spec, or why
    the stock ops sum them (`Spec.on`). A gradient is never split. One of `bucket_bytes` or more (0
    for the default) has a bucket to itself, so that it need not wait for others. Small gradients
    travel together, apart from the rest, and so do gradients with small messages.
    """
    limit = bucket_bytes or _DEFAULT_BYTES
    to_compress: dict[int, tuple[Gradient, Spec]] = {}
    uncompressed = []
    for index, gradient in enumerate(gradients):
        found = params.spec_of(gradient) if isinstance(gradient, Gradient) else gradient
        if isinstance(gradient, Gradient) and isinstance(found, Spec):
            if isinstance(reason := senders[found], str):
                found = Uncompressed(gradient.path, reason)
            else:
                to_compress[index] = (gradient, found)
        if isinstance(found, Uncompressed):
            uncompressed.append(found)

    def bucket(indices: list[int]) -> Bucket:
        spec = to_compress[indices[0]][1]
        known = tuple(to_compress[index][0] for index in indices)
        return Bucket(tuple(indices), known, senders[spec], spec.warm_up)

    full: list[list[int]] = []
    open_buckets: dict[tuple[Spec, tf.DType, bool], tuple[list[int], int]] = {}
    # Backpropagation reaches the last variable first.
    for index, (gradient, spec) in reversed(to_compress.items()):
        size = 0 if spec.in_one_bucket else gradient.elements * gradient.dtype.size
        if size >= limit:
            full.append([index])
            continue
        kind = (spec, gradient.dtype, size * _SMALL <= limit)
        indices, total = open_buckets.pop(kind, ([], 0))
        indices.append(index)
        total += size
        if total >= limit:
            full.append(indices)
        else:
            open_buckets[kind] = (indices, total)
    left_open = [indices for indices, _ in open_buckets.values()]
    return Schedule(
        buckets=tuple(bucket(indices) for indices in [*full, *left_open]),
        bypass=tuple(i for i in range(len(gradients)) if i not in to_compress),
        uncompressed=tuple(uncompressed),
    )
