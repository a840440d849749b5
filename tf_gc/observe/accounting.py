"""The bytes that steps send to sum gradients, for `strategy.traffic` and the log."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf
from absl import logging

from tf_gc import _compat
from tf_gc.network.traffic import Traffic, all_gather_bytes, all_reduce_bytes
from tf_gc.params import CompressionParams, Gradient, LeftAlone
from tf_gc.params.patterns import Pattern, matches, name_of
from tf_gc.reducers.reducer import Reduction
from tf_gc.reducers.wire import PACKED
from tf_gc.schedule import Schedule

# Gradients, each with the variable that it is for.
Pairs: TypeAlias = Sequence[tuple[Any, Any]]

# Instead of bytes sent, before the first step has run.
_NOT_YET = -1


class Accounting:
    """Keeps account of what reductions of gradients send, as they are built."""

    def __init__(self, params: CompressionParams) -> None:
        self._params = params
        self._latest: Traffic | None = None
        # Of each kind of step, the arguments of `Traffic.measured` in the latest one: only the step
        # itself knows how small its messages get, and how many rows it has.
        self._measured: dict[Traffic, tf.Variable] = {}
        self._missed: set[Pattern] = set()

    def traffic(self, built: Traffic | None = None) -> Traffic | None:
        """Returns the bytes of a step that `note` returned, or of the latest compressed step.

        `None` until a reduction with compression was built.
        """
        traffic = built or self._latest
        if traffic is None or traffic not in self._measured:
            return traffic
        sent, stock = self._measured[traffic].numpy().tolist()
        if sent == _NOT_YET:
            return traffic
        return traffic.measured(sent, stock)

    def note(
        self,
        schedule: Schedule,
        pairs: Pairs,
        reductions: Sequence[Reduction],
        replicas: int,
        compressed: bool,
    ) -> Traffic:
        """Returns the bytes of a step as far as they are known; called while it is built.

        A compressed step is logged if it is not what was noted before; one in full precision of a
        trial is not. `pairs` are gradients, a value for each replica of this host, with their
        variables.
        """
        in_steps = [reduction.stock_bytes for reduction in reductions]
        known_in_steps = {
            index
            for bucket, size in zip(schedule.buckets, in_steps, strict=False)
            if size is not None
            for index in bucket.indices
        }
        stock = [
            0 if i in known_in_steps else _stock_bytes(value, variable, replicas)
            for i, (value, variable) in enumerate(pairs)
        ]
        bypassed = sum(stock[i] for i in schedule.bypass)
        sent = sum((reduction.sent_bytes for reduction in reductions), start=0)
        known = isinstance(sent, int)
        most = sum((reduction.most_bytes for reduction in reductions), start=0)
        if known or not isinstance(most, int):
            most = sent if known else 0
        buckets = schedule.buckets
        traffic = Traffic(
            plan=", ".join(dict.fromkeys(bucket.reducer.plan for bucket in buckets)) or "stock",
            replicas=replicas,
            buckets=len(buckets),
            compressed_tensors=len(pairs) - len(schedule.bypass),
            bypassed_tensors=len(schedule.bypass),
            sent_bytes=bypassed + most,
            stock_bytes=sum(stock),
            wire=", ".join(dict.fromkeys(bucket.reducer.wire for bucket in buckets)) or PACKED,
            at_most=not known,
            excluded_tensors=sum(gradient.excluded for gradient in schedule.left_alone),
            bypassed_bytes=bypassed,
            without_rows=bool(known_in_steps),
            after_warm_up=schedule.warm_up,
        )
        if not known:
            more = sum((size for size in in_steps if size is not None), start=0)
            measured = tf.stack([tf.cast(sent, tf.int64), tf.cast(more, tf.int64)])
            if traffic not in self._measured:
                with tf.init_scope(), tf.device("CPU:0"):
                    self._measured[traffic] = _compat.OwnVariable(
                        tf.constant([_NOT_YET, 0], tf.int64), trainable=False
                    )
            self._measured[traffic].assign(measured, read_value=False)
        if not compressed:
            return traffic
        latest = self._latest
        if latest is not None and tf.executing_eagerly():  # eager steps may differ in their bytes
            names = ("sent_bytes", "stock_bytes", "bypassed_bytes")
            latest = dataclasses.replace(latest, **{name: getattr(traffic, name) for name in names})
        if traffic != latest:
            logging.info("tf_gc: %s: %s", self._params, traffic)
            logging.vlog(1, "tf_gc: schedule:\n%s", schedule)
            for bucket in buckets:
                if caution := bucket.reducer.caution:
                    logging.info("tf_gc: %s: %s", ", ".join(bucket.variables), caution)
        self._latest = traffic
        return traffic

    def warn_of_unmatched_patterns(self, gradients: Sequence[Gradient | LeftAlone | None]) -> None:
        """Warns, once for each, of the user's patterns that match none of a model's variables."""
        text = "tf_gc: the pattern %s of compression_params matches none of these %d variables: %s"
        known = [gradient for gradient in gradients if isinstance(gradient, Gradient)]
        paths = ", ".join(gradient.path for gradient in known)
        for pattern in dict.fromkeys(self._params.patterns()) if known else ():
            if pattern not in self._missed and not any(matches(pattern, g) for g in known):
                self._missed.add(pattern)
                logging.warning(text, name_of(pattern), len(known), paths)


def warn_that_nothing_is_compressed(schedule: Schedule, params: CompressionParams) -> None:
    """Warns that a schedule has all gradients take the stock path, and says why."""
    logging.warning(
        "tf_gc: nothing is compressed, so that this model gains nothing: of its %d gradients %s. "
        "compression_params: %s",
        len(schedule.left_alone),
        "; ".join(schedule.why_left_alone()),
        params,
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
