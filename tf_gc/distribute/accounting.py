"""What the steps send to sum gradients, for `strategy.traffic` and the log."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from tf_gc.params import CompressionParams, Gradient
from tf_gc.reduction.group import Bytes
from tf_gc.reduction.traffic import Traffic, all_gather_bytes, all_reduce_bytes
from tf_gc.residuals import NOT_LIFTED
from tf_gc.schedule import Schedule

Pairs = Sequence[tuple[Any, Any]]


class Accounting:
    """Keeps account of the most recently built reduction of gradients."""

    def __init__(self, params: CompressionParams) -> None:
        self._params = params
        self._traffic: Traffic | None = None
        # What the codes took in the latest step, where only the step knows that.
        self._measured: tf.Variable | None = None
        self._said_that_nothing_is_compressed = False

    @property
    def traffic(self) -> Traffic | None:
        """The bytes of a step; `None` until a reduction with compression was built."""
        if self._traffic is None or self._measured is None:
            return self._traffic
        sent = self._traffic.sent_bytes + int(self._measured.numpy())
        return dataclasses.replace(self._traffic, sent_bytes=sent)

    def note(self, schedule: Schedule, pairs: Pairs, sent: Bytes, replicas: int) -> None:
        """Notes a reduction; called while it is built.

        Args:
          schedule: what is sent how.
          pairs: each gradient, a value for each replica of this host, with its variable.
          sent: what a replica sends for all buckets.
          replicas: the number of replicas, on all hosts.
        """
        stock = [_stock_bytes(value, variable, replicas) for value, variable in pairs]
        if isinstance(sent, int):
            known, self._measured = sent, None
        else:
            known = 0
            with tf.init_scope():
                self._measured = tf.Variable(
                    lambda: tf.zeros([], tf.int64), trainable=False, **NOT_LIFTED
                )
            self._measured.assign(sent, read_value=False)
        plans = dict.fromkeys(bucket.plan.name for bucket in schedule.buckets)
        traffic = Traffic(
            plan=", ".join(plans) or "stock",
            replicas=replicas,
            buckets=len(schedule.buckets),
            compressed_tensors=len(pairs) - len(schedule.bypass),
            bypassed_tensors=len(schedule.bypass),
            sent_bytes=known + sum(stock[i] for i in schedule.bypass),
            stock_bytes=sum(stock),
        )
        if traffic != self._traffic:
            logging.info("tf_gc: %s: %s", self._params, traffic)
            logging.vlog(1, "tf_gc: schedule:\n%s", schedule)
        self._traffic = traffic

    def say_that_nothing_is_compressed(self, gradients: Sequence[Gradient | None]) -> None:
        """Warns, once, that all gradients take the stock path, and says why."""
        if self._said_that_nothing_is_compressed:
            return
        self._said_that_nothing_is_compressed = True
        dense = [gradient.elements for gradient in gradients if gradient is not None]
        reasons = []
        if len(dense) < len(gradients):
            reasons.append(f"{len(gradients) - len(dense)} are sparse (tf.IndexedSlices)")
        if dense:
            reasons.append(
                f"{len(dense)} have fewer elements than bypass_size, or a dtype that is not "
                f"compressed (the largest has {max(dense):,} elements)"
            )
        logging.warning(
            "tf_gc: nothing is compressed, so that this model gains nothing: of its %d gradients "
            "%s. compression_params: %s",
            len(gradients),
            " and ".join(reasons),
            self._params,
        )


def _stock_bytes(value: Any, destination: Any, replicas: int) -> int:
    """Returns what a replica sends for a gradient on the stock path."""
    gradient = value.values[0]
    size = destination.shape.num_elements() * gradient.dtype.size
    if isinstance(gradient, tf.IndexedSlices):
        elements = gradient.values.shape.num_elements()
        rows = gradient.indices.shape.num_elements()
        if elements is not None and rows is not None:
            size = elements * gradient.dtype.size + rows * gradient.indices.dtype.size
            return all_gather_bytes(size, replicas)
    return all_reduce_bytes(size, replicas)
