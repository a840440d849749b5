"""Pushing gradients: from a worker to the servers that have their variables."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from tf_gc.gradients import gradient_of
from tf_gc.observe.accounting import warn_that_nothing_is_compressed
from tf_gc.parameter_server.state import WorkersState
from tf_gc.parameter_server.traffic import Sent, full_bytes
from tf_gc.params import CompressionParams
from tf_gc.reducers.reducer import Push
from tf_gc.schedule import Schedule, make_schedule
from tf_gc.state import residuals
from tf_gc.state.stream import Stream
from tf_gc.steps import warm_up


class Pushes:
    """Pushes gradients to servers.

    Args:
      params: what is compressed, and how.

    Raises:
      ValueError: if `params` ask for something that is of no use under parameter servers.

    Attributes:
      compresses: whether there is anything that is compressed.
      sent: the bytes of the step that was traced last, without rows of tables.
      schedule: what the step that was traced last pushes, and how; `None` before.
    """

    def __init__(self, params: CompressionParams) -> None:
        self._params = params
        self._pushes = {spec: spec.push() for spec in params.specs()}
        self.compresses = bool(self._pushes)
        self.schedule: Schedule | None = None
        self.sent = Sent()

    def compresses_rows_of(self, variable: Any) -> bool:
        """Returns whether a `tf.IndexedSlices` is compressed if it is a gradient of a variable."""
        known = gradient_of(variable, variable.dtype, sparse=True, earlier=set())
        return bool(make_schedule(self._params, [known], self._pushes.__getitem__).buckets)

    def push(
        self,
        state: WorkersState,
        stream: Stream,
        gradients: Sequence[Any],
        variables: Sequence[Any],
    ) -> list[Any]:
        """Pushes this worker's gradients.

        Args:
          state: the residuals.
          stream: what the gradients come from.
          gradients: tensors and `tf.IndexedSlices`.
          variables: their variables, each on a server.

        Returns:
          The pushed gradients: compressed ones on the server of the variable, the others as they
          are.
        """
        schedule = self._schedule(gradients, variables)
        if self.schedule is None:
            logging.info("tf_gc: gradients are pushed as follows\n%s", schedule)
            if not schedule.buckets:
                warn_that_nothing_is_compressed(schedule, self._params)
        self.schedule = schedule
        results = list(gradients)
        sent = Sent()
        for i in schedule.bypass:
            if not isinstance(gradients[i], tf.IndexedSlices):
                full = full_bytes(variables[i], gradients[i].dtype)
                sent += Sent(full, full)
        warms_up = self._warm_up(state, stream, schedule, gradients, variables)
        for bucket in schedule.buckets:
            assert isinstance(bucket.reducer, Push)
            mine = [variables[i] for i in bucket.indices]
            kept = bucket.reducer.keeps_residuals
            pushed, words = bucket.reducer.send(
                [gradients[i] for i in bucket.indices],
                [state.value(residuals.SLOT, stream, variable).handle() for variable in mine]
                if kept
                else [],
                mine,
                mine[0].device,
                warms_up if bucket.warm_up else None,
            )
            for i, value in zip(bucket.indices, pushed, strict=True):
                results[i] = value
            full = sum(full_bytes(variables[i], gradients[i].dtype) for i in bucket.indices)
            sent += Sent(words * tf.int64.size, full if words else 0)
        self.sent = sent
        state.log_what_was_restored()
        return results

    def _warm_up(
        self,
        state: WorkersState,
        stream: Stream,
        schedule: Schedule,
        gradients: Sequence[Any],
        variables: Sequence[Any],
    ) -> tf.Tensor | None:
        """Returns whether this worker's step is in full precision; `None` if none is.

        Each worker goes by the norm of its own gradients.
        """
        warm = [i for bucket in schedule.buckets if bucket.warm_up for i in bucket.indices]
        if not warm:
            return None
        rest = [i for i in range(len(variables)) if i not in warm]
        ordered = [variables[i] for i in (*warm, *rest)]
        kept = state.of_first(warm_up.SLOT, stream, ordered)
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
        servers = dict.fromkeys(variable.device for variable in variables)
        parts = [
            make_schedule(
                self._params,
                [
                    each if variable.device == server else None
                    for each, variable in zip(known, variables, strict=True)
                ],
                self._pushes.__getitem__,
            )
            for server in servers
        ]
        buckets = tuple(bucket for part in parts for bucket in part.buckets)
        compressed = {index for bucket in buckets for index in bucket.indices}
        return Schedule(
            buckets=buckets,
            bypass=tuple(i for i in range(len(variables)) if i not in compressed),
            left_alone=tuple(gradient for part in parts for gradient in part.left_alone),
        )
