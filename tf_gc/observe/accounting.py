"""The bytes that steps send to sum gradients, as they are built and as they run."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from absl import logging

from tf_gc import _compat
from tf_gc.network.traffic import Traffic, all_gather_bytes, all_reduce_bytes
from tf_gc.params import CompressionParams, Gradient, Uncompressed
from tf_gc.params.patterns import Pattern, matches, name_of
from tf_gc.reducers.reducer import Reduction
from tf_gc.reducers.wire import PACKED
from tf_gc.schedule import Schedule

# Gradients, a value for each replica of this host, each with the variable that it is for.
Pairs: TypeAlias = Sequence[tuple[Any, Any]]

# Instead of bytes, before the first step has run.
_NOT_YET = -1


@dataclasses.dataclass(frozen=True)
class Built:
    """How steps are built, and what they send, as far as that is known.

    `latest` has the bytes of each bucket in the latest step, int64 [buckets, 2]: those that were
    sent, and those that the stock ops would send besides. It is a variable where only steps know.
    """

    schedule: Schedule
    traffic: Traffic
    latest: Any

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        pairs: Pairs,
        reductions: Sequence[Reduction],
        replicas: int,
        before: "Built | None",
    ) -> "Built":
        """Makes it while a step is built, given how earlier ones with these buckets were."""
        traffic = _traffic_of(schedule, pairs, reductions, replicas)
        numbers = [
            (r.sent_bytes, 0 if r.stock_bytes is None else r.stock_bytes) for r in reductions
        ]
        if tf.executing_eagerly() or all(isinstance(n, int) for of_all in numbers for n in of_all):
            known = np.array([[int(n) for n in each] for each in numbers], np.int64)
            return cls(schedule, traffic, None).with_bytes(known.reshape(-1, 2))
        latest = None if before is None else before.latest
        if not isinstance(latest, tf.Variable):
            with tf.init_scope(), tf.device("CPU:0"):
                first = tf.fill([len(numbers), 2], tf.constant(_NOT_YET, tf.int64))
                latest = _compat.OwnVariable(first, trainable=False)
        with tf.device("CPU:0"):
            rows = [[tf.cast(n, tf.int64) for n in of_bucket] for of_bucket in numbers]
            latest.assign(tf.stack(rows), read_value=False)
        return cls(schedule, traffic, latest)

    def with_bytes(self, latest: npt.NDArray[np.int64]) -> "Built":
        """Returns it with the bytes of a step."""
        sent, stock = latest.sum(axis=0).tolist()
        return Built(self.schedule, self.traffic.completed(sent, stock), latest)

    def now(self) -> "Built":
        """Returns it with what the latest step sent, if one has run."""
        if not isinstance(self.latest, tf.Variable):
            return self
        latest = self.latest.numpy()
        return self if latest[0, 0] == _NOT_YET else self.with_bytes(latest)

    @property
    def sizes(self) -> list[int | None]:
        """For each bucket the bytes that a step sends; `None` if none has run."""
        if isinstance(self.latest, tf.Variable):
            return [None] * len(self.schedule.buckets)
        return self.latest[:, 0].tolist()


def warn_of_unmatched_patterns(
    params: CompressionParams,
    gradients: Sequence[Gradient | Uncompressed | None],
    said: set[Pattern],
) -> None:
    """Warns, once for each, of the user's patterns that match none of a model's variables.

    `said` has those of which it has warned.
    """
    text = "tf_gc: the pattern %s of compression_params matches none of these %d variables: %s"
    known = [gradient for gradient in gradients if isinstance(gradient, Gradient)]
    paths = ", ".join(gradient.path for gradient in known)
    for pattern in dict.fromkeys(params.patterns()) if known else ():
        if pattern not in said and not any(matches(pattern, g) for g in known):
            said.add(pattern)
            logging.warning(text, name_of(pattern), len(known), paths)


def warn_that_nothing_is_compressed(schedule: Schedule, params: CompressionParams) -> None:
    """Warns that a schedule has all gradients take the stock path, and says why."""
    logging.warning(
        "tf_gc: nothing is compressed, so tf_gc does not speed up this model: of its %d gradients "
        "%s. compression_params: %s",
        len(schedule.uncompressed),
        "; ".join(schedule.why_uncompressed()),
        params,
    )


def _traffic_of(
    schedule: Schedule, pairs: Pairs, reductions: Sequence[Reduction], replicas: int
) -> Traffic:
    """Returns the bytes of a step as far as they are known before it runs."""
    in_steps = {
        index
        for bucket, reduction in zip(schedule.buckets, reductions, strict=False)
        if reduction.stock_bytes is not None
        for index in bucket.indices
    }
    stock = [
        0 if i in in_steps else _stock_bytes(value, variable, replicas)
        for i, (value, variable) in enumerate(pairs)
    ]
    bypassed = sum(stock[i] for i in schedule.bypass)
    most = sum((reduction.most_bytes for reduction in reductions), start=0)
    buckets = schedule.buckets
    return Traffic(
        plan=", ".join(dict.fromkeys(bucket.reducer.plan for bucket in buckets)) or "stock",
        replicas=replicas,
        buckets=len(buckets),
        compressed_tensors=len(pairs) - len(schedule.bypass),
        bypassed_tensors=len(schedule.bypass),
        sent_bytes=bypassed + (most if isinstance(most, int) else 0),
        stock_bytes=sum(stock),
        wire=", ".join(dict.fromkeys(bucket.reducer.wire for bucket in buckets)) or PACKED,
        at_most=True,
        excluded_tensors=sum(gradient.excluded for gradient in schedule.uncompressed),
        bypassed_bytes=bypassed,
        without_rows=bool(in_steps),
        after_warm_up=schedule.warm_up,
    )


def _stock_bytes(value: Any, destination: Any, replicas: int) -> int:
    """Returns what a replica sends for a gradient on the stock path; 0 if its size is not known."""
    gradient = value.values[0]
    # A destination may be a device.
    shape = destination.shape if isinstance(destination, tf.Variable) else gradient.shape
    size = (shape.num_elements() or 0) * gradient.dtype.size
    if isinstance(gradient, tf.IndexedSlices):
        elements = gradient.values.shape.num_elements()
        rows = gradient.indices.shape.num_elements()
        if elements is not None and rows is not None:
            size = elements * gradient.dtype.size + rows * gradient.indices.dtype.size
            return all_gather_bytes(size, replicas)
    return all_reduce_bytes(size, replicas)
