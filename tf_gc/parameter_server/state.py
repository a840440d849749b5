"""The residuals of workers that push to parameter servers."""

import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.parameter_server.per_worker import OnWorkers
from tf_gc.state import residuals
from tf_gc.state.seat import Slot
from tf_gc.state.stream import Stream
from tf_gc.steps import warm_up
from tf_gc.steps.compression_state import CompressionState, StreamState


class WorkersState(CompressionState):
    """A `tf_gc.steps.compression_state.CompressionState` whose residuals are on the workers.

    A checkpoint holds the sum of all workers' residuals, and restoring gives each an equal part of
    it. The residuals of a worker that dies are lost.
    """

    def __init__(self, strategy: Any, in_use: bool) -> None:
        super().__init__(in_use)
        self._strategy = weakref.ref(strategy)

    def of(self, stream: Stream) -> "PushedStream":
        return PushedStream(self, stream)

    def log_what_was_restored(self) -> None:
        # Whoever asks before the first gradients are pushed asks too early.
        if len(self):
            super().log_what_was_restored()

    def _make(self, slot: Slot, variable: Any, name: str) -> OnWorkers:
        del name
        if slot.size is None:
            return OnWorkers(self._strategy(), variable.shape)
        return OnWorkers(
            self._strategy(),
            tf.TensorShape([slot.size]),
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )


class PushedStream(StreamState):
    """What belongs to a stream of gradients that are pushed."""

    def residual_of(self, variable: Any) -> OnWorkers:
        """Returns the residuals of a variable, one on each worker."""
        kept: OnWorkers = self._state.value(residuals.SLOT, self.stream, variable)
        return kept

    def warm_up_of(self, variables: Sequence[Any]) -> OnWorkers:
        """Returns how far each worker's warm-up is, of variables that are pushed together."""
        kept: OnWorkers = self.of_first(warm_up.SLOT, variables)
        return kept

    def log_what_was_restored(self) -> None:
        """Logs which residuals were restored, once."""
        self._state.log_what_was_restored()

    def add_restored(self, gradients: tuple[Any, ...], variable: Any) -> tuple[Any, ...]:
        # What is pushed has its residuals with it, and nothing else can: they are on the workers.
        del variable
        return gradients
