"""The residuals of workers that push to parameter servers."""

import weakref
from typing import Any

import tensorflow as tf

from tf_gc.parameter_server.per_worker import PerWorker, on_workers
from tf_gc.state.registry import Slot
from tf_gc.steps.compression_state import CompressionState


class WorkersState(CompressionState):
    """Residuals on the workers.

    A checkpoint holds the sum of all workers' residuals, and restoring gives each an equal part of
    it. The residuals of a worker that dies are lost.
    """

    def __init__(self, strategy: Any, in_use: bool) -> None:
        super().__init__(in_use)
        self._strategy = weakref.ref(strategy)

    def _make(self, slot: Slot, variable: Any, name: str) -> PerWorker:
        del name
        if slot.size is None:
            return on_workers(self._strategy(), variable.shape)
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        return on_workers(self._strategy(), tf.TensorShape([slot.size]), aggregation=first)
