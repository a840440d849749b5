"""Pushing gradients: from a worker to the servers that have their variables."""

import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from tf_gc.gradients import gradient_of
from tf_gc.network.group import Replica
from tf_gc.observe.accounting import warn_that_nothing_is_compressed
from tf_gc.parameter_server.per_worker import PerWorker, on_workers
from tf_gc.parameter_server.traffic import Sent, full_bytes
from tf_gc.params import CompressionParams
from tf_gc.schedule import Schedule, make_schedule, together
from tf_gc.state import residuals
from tf_gc.state.registry import Slot
from tf_gc.state.stream import Stream
from tf_gc.steps import warm_up
from tf_gc.steps.compression_state import CompressionState


class WorkersState(CompressionState):
    """Residuals on the workers.

    A checkpoint holds the sum of all workers' residuals, and restoring gives each an equal part of
    it. The residuals of a worker that dies are lost.
    """

    def __init__(self, strategy: Any, in_use: bool) -> None:
        super().__init__(in_use)
        self._strategy = weakref.ref(strategy)

    def _make(self, slot: Slot, variable: Any, shape: tf.TensorShape, name: str) -> PerWorker:
        del variable, name
        kind = tf.VariableAggregation["SUM" if slot.size is None else "ONLY_FIRST_REPLICA"]
        return on_workers(self._strategy(), shape, slot.dtype, kind)


class Pushes:
    """Pushes gradients to servers, as params say.

    `schedule` says what a step of all streams pushes, as each was traced last, and `sent` its bytes
    without rows of tables.
    """

    def __init__(self, strategy: tf.distribute.Strategy, params: CompressionParams) -> None:
        self._params = params
        self.senders = {spec: spec.push() for spec in params.specs()}
        self.state = WorkersState(strategy, in_use=bool(params.specs()))
        self._built = weakref.WeakKeyDictionary[Stream, tuple[Schedule, Sent]]()

    @property
    def schedule(self) -> Schedule | None:
        return together([each for each, _ in self._built.values()]) if self._built else None

    @property
    def sent(self) -> Sent:
        return sum((each for _, each in self._built.values()), start=Sent())

    def push(self, stream: Stream, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Pushes this worker's gradients.

        Compressed ones come out on the server of their variable, the others as they are.
        """
        schedule = self._schedule(gradients, variables)
        if not self._built:
            logging.info("tf_gc: gradients are pushed as follows\n%s", schedule)
            if not schedule.buckets:
                warn_that_nothing_is_compressed(schedule, self._params)
        for gradient, variable in zip(gradients, variables, strict=True):
            if not isinstance(gradient, tf.IndexedSlices):
                gradient.set_shape(variable.shape)  # which is not known out of a loop
        results = list(gradients)
        full = [full_bytes(variables[i], g.dtype) for i, g in enumerate(gradients)]
        sent = Sent()
        for i in schedule.bypass:
            if not isinstance(gradients[i], tf.IndexedSlices):
                sent += Sent(full[i], full[i])
        warms_up = self._warm_up(stream, schedule, gradients, variables)
        for bucket in schedule.buckets:
            mine = [variables[i] for i in bucket.indices]
            dtype = bucket.reducer.residual_dtype
            slot = residuals.slot_of(dtype) if dtype else None
            kept = [self.state.value(slot, stream, each).handle() for each in mine if slot]
            worker = Replica("", [gradients[i] for i in bucket.indices], kept, mine)
            is_warm = warms_up if bucket.warm_up else None
            pushed, words = bucket.reducer.send(worker, mine[0].device, is_warm)
            for i, value in zip(bucket.indices, pushed, strict=True):
                results[i] = value
            if words:
                sent += Sent(words * tf.int64.size, sum(full[i] for i in bucket.indices))
        self._built[stream] = schedule, sent
        self.state.log_what_was_restored()
        return results

    def _warm_up(
        self, stream: Stream, schedule: Schedule, gradients: Sequence[Any], variables: Sequence[Any]
    ) -> tf.Tensor | None:
        """Returns whether this worker's step is in full precision; `None` if none is.

        Each worker goes by the norm of its own gradients.
        """
        warm = [i for bucket in schedule.buckets if bucket.warm_up for i in bucket.indices]
        if not warm:
            return None
        rest = [i for i in range(len(variables)) if i not in warm]
        kept = self.state.of_first(warm_up.SLOT, stream, [variables[i] for i in (*warm, *rest)])
        before = kept.read()
        is_on = warm_up.is_on(before)
        # Later steps need no norm.
        after = tf.cond(
            is_on,
            lambda: warm_up.after_step(before, warm_up.report(before), gradients),
            lambda: before,
        )
        kept.assign(after)
        return is_on

    def _schedule(self, gradients: Sequence[Any], variables: Sequence[Any]) -> Schedule:
        """Returns how each gradient is pushed; a bucket has gradients of one server."""
        earlier: set[int] = set()
        known = [
            gradient_of(variable, gradient.dtype, isinstance(gradient, tf.IndexedSlices), earlier)
            for gradient, variable in zip(gradients, variables, strict=True)
        ]
        parts = []
        for server in dict.fromkeys(variable.device for variable in variables):
            pairs = zip(known, variables, strict=True)
            here = [each if variable.device == server else None for each, variable in pairs]
            parts.append(make_schedule(self._params, here, self.senders))
        buckets = tuple(bucket for part in parts for bucket in part.buckets)
        compressed = {index for bucket in buckets for index in bucket.indices}
        return Schedule(
            buckets=buckets,
            bypass=tuple(i for i in range(len(variables)) if i not in compressed),
            uncompressed=tuple(gradient for part in parts for gradient in part.uncompressed),
        )
