"""Slots, and how a checkpoint sees what is in them."""

import copy
import dataclasses
import weakref
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tf_gc import _compat

# By this name a checkpoint holds the value of a variable, and that of a seat.
_VALUE = "VARIABLE_VALUE"

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Slot:
    """One thing that is kept for a variable, in float32.

    Attributes:
      name: what it is called in checkpoints.
      size: `None` if replicas hold parts of a sum, each of the shape of the variable; else all
        replicas hold the same vector of this size.
    """

    name: str
    size: int | None = None


class Receiver(Protocol):
    """What takes the values of a checkpoint."""

    def arrived(self, slot: str, key: str, value: Array) -> None:
        """Takes what a checkpoint holds by a key."""


class Seat(tf.__internal__.tracking.Trackable):
    """A value in a checkpoint: that of a variable, or one that waits for its variable.

    What a checkpoint holds for it goes to a receiver, which knows whose value that is. TensorFlow
    would assign it to the variable that has the same key now, whatever shape that has.

    Attributes:
      variable: a distributed variable, of which the sum or the common value is saved.
      value: what waits, if there is no variable.
    """

    def __init__(self, receiver: Receiver, slot: str, key: str, variable: Any = None) -> None:
        """Initializes the object.

        Args:
          receiver: takes the values of checkpoints; it is not kept alive.
          slot: the name of the slot.
          key: the key of this seat in the slot.
          variable: as in the class.
        """
        self._receiver = weakref.ref(receiver)
        self._slot, self._key = slot, key
        self.variable = variable
        self.value: Array = np.zeros([], np.float32)

    def copied(self) -> "Seat":
        """Returns a seat with the value of now; for parts of a sum, on workers, a collective."""
        copied = copy.copy(self)
        if self.variable is not None:
            copied.value, copied.variable = self.variable.read_value().numpy(), None
        return copied

    @tf.autograph.experimental.do_not_convert
    def _copy_trackable_to_cpu(self, object_map: Any) -> None:
        """Does nothing: the store copies all seats, also those that are made later."""

    def _serialize_to_tensors(self) -> dict[str, Any]:
        if self.variable is None:
            with tf.device("/device:CPU:0"):
                return {_VALUE: tf.constant(self.value)}
        # TensorFlow calls this to restore, too. Then nothing is to be read.
        read, device = self.variable.read_value, self.variable.device
        return {_VALUE: _compat.SaveSpec(read, "", "", tf.float32, device)}

    def _restore_from_tensors(self, restored_tensors: dict[str, tf.Tensor]) -> Any:
        value = restored_tensors[_VALUE]
        if not tf.executing_eagerly():  # as TensorFlow does if the values are on several devices
            return tf.py_function(self._take, [value], [])
        self._take(value)
        return None

    def _take(self, value: tf.Tensor) -> None:
        if self.variable is None:
            self.value = value.numpy()
        receiver = self._receiver()
        if receiver is not None:
            receiver.arrived(self._slot, self._key, value.numpy())


def is_parts(variable: Any) -> bool:
    """Whether replicas hold parts of a sum."""
    return variable.aggregation == tf.VariableAggregation.SUM


def assign(variable: Any, value: Array | tf.Tensor) -> None:
    """Gives each replica of this host the value, or an equal part of it.

    Args:
      variable: a distributed variable.
      value: float32 of its shape, the same on all workers.

    Raises:
      tf.errors.UnavailableError: if there is nobody to give it to.
    """
    mine = tf.convert_to_tensor(value, tf.float32)
    if is_parts(variable):
        parts = (
            variable.distribute_strategy.num_replicas_in_sync
            if isinstance(variable, tf.Variable)
            else variable.parts  # on the workers that are alive
        )
        if parts == 0:
            raise tf.errors.UnavailableError(
                None, None, "no worker is alive to take what was restored: restore it again later"
            )
        mine = mine / parts
    for component in variable.values:
        component.assign(mine)
