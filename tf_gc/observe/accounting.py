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
        # The bytes of the buckets in the latest step, and by the stock ops the bytes beyond
        # what is known: by what else is known of a step. Only the step itself knows how small its
        # messages get, and how many rows it has. A traced step keeps its variable for ever.
        self._measured: dict[Traffic, tf.Variable] = {}
        self._warned_that_nothing_is_compressed = False
        self._missed: set[Pattern] = set()

    def traffic(self, built: Traffic | None = None) -> Traffic | None:
        """Returns the bytes of a step; `None` until a reduction with compression was built.

        Args:
          built: what `note` returned; `None` for what it returned of the latest compressed step.
        """
        traffic = built or self._latest
        if traffic is None or traffic not in self._measured:
            return traffic
        sent, stock = self._measured[traffic].numpy().tolist()
        if sent == _NOT_YET:
            return traffic
        return dataclasses.replace(
            traffic,
            sent_bytes=traffic.bypassed_bytes + sent,
            stock_bytes=traffic.stock_bytes + stock,
            at_most=False,
            without_rows=False,
        )

    def note(
        self,
        schedule: Schedule,
        pairs: Pairs,
        reductions: Sequence[Reduction],
        replicas: int,
        compressed: bool,
    ) -> Traffic:
        """Notes what a step sends; called while it is built.

        Args:
          schedule: how each gradient is sent.
          pairs: each gradient, a value for each replica of this host, with its variable.
          reductions: the reductions of the schedule's buckets.
          replicas: the number of replicas, on all hosts.
          compressed: whether it is a compressed step, which is logged if it is not what was noted
            before; not one in full precision of a trial.

        Returns:
          The bytes of a step as far as they are known.
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
            excluded_tensors=len(schedule.excluded),
            bypassed_bytes=bypassed,
            without_rows=bool(known_in_steps),
            after_warm_up=schedule.warm_up,
        )
        if not known:
            more = sum((size for size in in_steps if size is not None), start=0)
            measured = tf.stack([tf.cast(sent, tf.int64), tf.cast(more, tf.int64)])
            self._variable_of(traffic).assign(measured, read_value=False)
        if not compressed:
            return traffic
        if not self._is_known(traffic):
            logging.info("tf_gc: %s: %s", self._params, traffic)
            logging.vlog(1, "tf_gc: schedule:\n%s", schedule)
            for bucket in buckets:
                if bucket.reducer.caution:
                    names = ", ".join(bucket.variables)
                    logging.info("tf_gc: %s: %s", names, bucket.reducer.caution)
        self._latest = traffic
        return traffic

    def _is_known(self, traffic: Traffic) -> bool:
        """Whether the latest step sent the same. Eager steps may differ in their bytes alone."""
        if self._latest is None or not tf.executing_eagerly():
            return traffic == self._latest
        bytes_of = {f.name: getattr(traffic, f.name) for f in dataclasses.fields(traffic)}
        bytes_of = {name: value for name, value in bytes_of.items() if name.endswith("_bytes")}
        return traffic == dataclasses.replace(self._latest, **bytes_of)

    def _variable_of(self, traffic: Traffic) -> tf.Variable:
        if traffic not in self._measured:
            with tf.init_scope(), tf.device("CPU:0"):
                self._measured[traffic] = _compat.OwnVariable(
                    tf.constant([_NOT_YET, 0], tf.int64), trainable=False
                )
        return self._measured[traffic]

    def warn_of_unmatched_patterns(self, gradients: Sequence[Gradient | LeftAlone | None]) -> None:
        """Warns, once for each, of the user's patterns that match no variable.

        Args:
          gradients: those that are reduced together, in all of which no pattern may match.
        """
        known = [gradient for gradient in gradients if isinstance(gradient, Gradient)]
        for pattern in dict.fromkeys(self._params.patterns()) if known else ():
            if pattern not in self._missed and not any(matches(pattern, g) for g in known):
                self._missed.add(pattern)
                logging.warning(
                    "tf_gc: the pattern %s of compression_params matches none of these %d "
                    "variables: %s",
                    name_of(pattern),
                    len(known),
                    ", ".join(gradient.path for gradient in known),
                )

    def warn_that_nothing_is_compressed(self, schedule: Schedule) -> None:
        """Warns, once, that all gradients take the stock path, and says why."""
        if not self._warned_that_nothing_is_compressed:
            self._warned_that_nothing_is_compressed = True
            warn_that_nothing_is_compressed(schedule, self._params)


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
