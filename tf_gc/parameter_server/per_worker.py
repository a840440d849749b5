"""Variables of which there is one for each worker, on the worker or on a server."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from absl import logging

from tf_gc import _compat

_CPU = "/device:CPU:0"


class PerWorker:
    """Zeros at first, one variable for each worker.

    A function that is scheduled to a worker uses that worker's; it is traced once for all of them.

    Attributes:
      aggregation: whether a checkpoint holds the sum over the workers, or the value of the first
        one.
      device: where `read_value` puts its result.
      shape: of each variable.
    """

    device = _CPU

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
        with tf.init_scope(), tf.device(_CPU):
            # TensorFlow has to know what the handles stand for, before there are any.
            self._example = _variable(shape, dtype).handle

    @property
    def values(self) -> list[Any]:
        """The variables of the workers that are alive, in their order.

        They are on other machines: reading one copies it to the coordinator.
        """
        values = map(self._value, self._made)
        return [value for value in values if value is not None]

    @property
    def parts(self) -> int:
        """How many variables there are."""
        return len(self.values)

    def handle(self) -> tf.Tensor:
        """Returns the handle of the calling worker's variable, in the function being built.

        All calls for one function return the same tensor, so that TensorFlow orders reads and
        writes of the variable.
        """
        return _compat.handle_at_call(self, self._example, self._handle_of)

    def _handle_of(self, worker: int) -> tf.Tensor:
        variable = self._value(self._made[worker])
        if variable is None:
            raise tf.errors.UnavailableError(None, None, f"worker {worker} is starting anew")
        return variable.handle

    def read_value(self) -> tf.Tensor:
        """Returns what a checkpoint holds, on the coordinator, of the workers that are alive."""
        values = [tf.zeros(self.shape, self.dtype)]
        for variable in self.values:
            try:
                with tf.device(_CPU):
                    values.append(tf.identity(variable.read_value()))
            except tf.errors.UnavailableError:  # the worker has died just now
                logging.warning("tf_gc: what the worker at %s had is lost", variable.device)
        return tf.add_n(values if self.aggregation == tf.VariableAggregation.SUM else values[:2])

    def numpy(self) -> npt.NDArray[np.float32]:
        """Returns what a checkpoint holds."""
        total: npt.NDArray[np.float32] = self.read_value().numpy()
        return total

    def __getitem__(self, index: int) -> tf.Tensor:
        return self.read_value()[index]

    def read(self) -> tf.Tensor:
        """Returns the value of the calling worker's variable, in the function being built."""
        value = tf.raw_ops.ReadVariableOp(resource=self.handle(), dtype=self.dtype)
        value.set_shape(self.shape)
        return value

    def assign(self, value: tf.Tensor) -> tf.Operation:
        """Assigns the calling worker's variable, in the function being built; returns the op."""
        return tf.raw_ops.AssignVariableOp(resource=self.handle(), value=value)


class OnWorkers(PerWorker):
    """Each worker has its own variable. After a restart of the worker it is zero again."""

    def __init__(
        self,
        strategy: Any,
        shape: tf.TensorShape,
        dtype: tf.DType = tf.float32,
        aggregation: tf.VariableAggregation = tf.VariableAggregation.SUM,
    ) -> None:
        made = _compat.make_on_workers(strategy, lambda: _variable(shape, dtype))
        super().__init__(made, _compat.value_on_worker, shape, dtype, aggregation)


class OnServer(PerWorker):
    """A server has a variable for each worker."""

    def __init__(
        self, strategy: Any, server: str, shape: tf.TensorShape, dtype: tf.DType = tf.float32
    ) -> None:
        with tf.init_scope(), tf.device(server):
            made = [_variable(shape, dtype) for _ in range(strategy.extended.worker_count)]
        super().__init__(made, lambda variable: variable, shape, dtype)


def _variable(shape: tf.TensorShape, dtype: tf.DType) -> Any:
    """Returns a variable of zeros that no strategy knows of, on the current device."""
    return _compat.OwnVariable(tf.zeros(shape, dtype), trainable=False)
