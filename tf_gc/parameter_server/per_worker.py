"""Variables of which there is one for each worker, on the worker or on a server."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from absl import logging

from tf_gc import _compat
from tf_gc.state.stored import stored_shape, widened


class PerWorker:
    """Zeros at first; a function, traced once for all workers, uses the one of its worker.

    A checkpoint holds the sum over the workers, or by `aggregation` the value of the first one.
    """

    def __init__(
        self,
        made: Sequence[Any],
        value: Callable[[Any], Any],
        shape: tf.TensorShape,
        dtype: tf.DType,
        aggregation: tf.VariableAggregation = tf.VariableAggregation.SUM,
    ) -> None:
        self._made, self._value = made, value
        self.aggregation = aggregation
        self.shape = shape
        self.dtype = dtype
        with tf.init_scope(), tf.device("/device:CPU:0"):
            # TensorFlow has to know what the handles stand for, before there are any.
            self._example = _variable(shape, dtype).handle

    @property
    def values(self) -> list[Any]:
        """The variables of the workers that are alive, in their order, wherever they are."""
        values = map(self._value, self._made)
        return [value for value in values if value is not None]

    def handle(self) -> tf.Tensor:
        """Returns the handle of the calling worker's variable, in the function being built.

        It is the same tensor in all of a function, so that TensorFlow orders reads and writes.
        """
        graph = tf.compat.v1.get_default_graph()
        # A loop or a branch is part of the function around it.
        while _compat.is_part_of_outer(graph):
            graph = graph.outer_graph
        spec = _compat.HandleSpec(value=self._example)
        return graph.capture_call_time_value(self._handle_of_caller, spec, key=self)

    def _handle_of_caller(self) -> tf.Tensor:
        dispatch = _compat.current_dispatch()
        if dispatch is None:
            raise RuntimeError(
                "this function uses variables of workers: run it with ClusterCoordinator.schedule"
            )
        variable = self._value(self._made[dispatch.worker_index])
        if variable is None:
            worker = dispatch.worker_index
            raise tf.errors.UnavailableError(None, None, f"worker {worker} is starting anew")
        return variable.handle

    def read(self) -> tf.Tensor:
        """Returns the value of the calling worker's variable, in the function being built."""
        value = tf.raw_ops.ReadVariableOp(resource=self.handle(), dtype=self.dtype)
        value.set_shape(self.shape)
        return value

    def assign(self, value: tf.Tensor) -> tf.Operation:
        """Assigns the calling worker's variable, in the function being built; returns the op."""
        return tf.raw_ops.AssignVariableOp(resource=self.handle(), value=value)

    def numpy(self) -> npt.NDArray[np.float32]:
        """Returns what a checkpoint holds, of the workers that are alive."""
        parts = []
        for variable in self.values:
            try:
                parts.append(widened(tf.constant(variable.numpy()), self.shape).numpy())
            except tf.errors.UnavailableError:  # the worker has died just now
                logging.warning(
                    "tf_gc: the residuals and copies of the worker at %s are lost", variable.device
                )
        if self.aggregation != tf.VariableAggregation.SUM:
            parts = parts[:1]
        return sum(parts, start=np.zeros(self.shape.as_list(), np.float32))

    def __getitem__(self, index: int) -> np.float32:
        return self.numpy()[index]

    def on_server(self, server: str) -> "PerWorker":
        """Returns variables like these for the workers, all of which are on a server."""
        with tf.init_scope(), tf.device(server):
            made = [_variable(self.shape, self.dtype) for _ in self._made]
        return PerWorker(made, lambda variable: variable, self.shape, self.dtype)


def on_workers(
    strategy: Any,
    shape: tf.TensorShape,
    dtype: tf.DType = tf.float32,
    aggregation: tf.VariableAggregation = tf.VariableAggregation.SUM,
) -> PerWorker:
    """Makes a variable on each worker. After a restart of the worker it is zero again."""
    coordinator = strategy._cluster_coordinator
    made = coordinator._create_per_worker_variables(lambda: _variable(shape, dtype))
    return PerWorker(made._values, _compat.value_on_worker, shape, dtype, aggregation)


def _variable(shape: tf.TensorShape, dtype: tf.DType) -> Any:
    return _compat.OwnVariable(tf.zeros(stored_shape(shape, dtype), dtype), trainable=False)
