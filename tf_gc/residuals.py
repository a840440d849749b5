"""Residuals: what each replica has not sent yet, one variable for each (variable, replica)."""

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf


class CompressionState(tf.Module):
    """The residuals of a strategy, by variable.

    Trackable: `tf.train.Checkpoint(model=model, compression=strategy.compression_state)`
    saves the sum of a variable's residuals over the replicas, which is the gradient that has
    not been applied yet, and restoring gives each replica an equal part of it. (In
    TensorFlow's terms a residual is a variable with `ON_READ` synchronization and `SUM`
    aggregation.)

    A residual is made, with zeros, when a gradient of its variable is first reduced, and is
    released with its variable. Restoring before the first step works as for any Keras
    variable that does not exist yet: the values wait.
    """

    def __init__(self) -> None:
        super().__init__(name="compression_state")
        # Its attributes are what a checkpoint holds, each by its key: the variable's name and,
        # for a name that occurs again, a number in the order of the first reductions.
        self._residuals = tf.Module(name="residuals")
        self._key_of = _KeyOf()

    def residuals_of(self, variable: tf.Variable) -> Sequence[tf.Variable]:
        """Returns the float32 residuals of a distributed variable, one for each local replica.

        Args:
          variable: the distributed variable whose gradient is reduced.

        Returns:
          Variables of its shape, in the order of the local replicas, each on its device.
        """
        return self._residual_of(variable).values

    def total(self, variable: tf.Variable) -> npt.NDArray[np.float32] | None:
        """Returns the sum of a variable's residuals over all replicas, of its shape.

        Under a strategy of several workers that is a collective: all of them have to call it,
        for the same variables in the same order.

        Args:
          variable: a distributed variable.

        Returns:
          The sum, `None` if the variable has no residuals.
        """
        key = self._key_of.by_id.get(id(variable))
        return None if key is None else getattr(self._residuals, key).numpy()

    def set_total(self, variable: tf.Variable, total: npt.NDArray[Any]) -> None:
        """Gives each replica an equal part of `total`, so that their residuals sum up to it.

        Args:
          variable: a distributed variable.
          total: float32 of its shape, the same on all workers.
        """
        self._residual_of(variable).assign(total)

    def reset(self) -> None:
        """Sets all residuals to zero: what has not been sent yet is dropped."""
        for residual in self.variables:
            for component in residual.values:
                component.assign(tf.zeros_like(component))

    def __len__(self) -> int:
        return len(self.variables)

    def _residual_of(self, variable: tf.Variable) -> Any:
        # An id is not used again while its entry is here: the entry goes with the variable.
        key = self._key_of.by_id.get(id(variable))
        return getattr(self._residuals, key or self._create(variable))

    def _create(self, variable: tf.Variable) -> str:
        key = self._new_key(variable.name)
        shape = variable.shape
        with tf.init_scope(), variable.distribute_strategy.scope():
            residual = tf.Variable(
                lambda: tf.zeros(shape),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
                name=key,
            )
        setattr(self._residuals, key, residual)
        self._key_of.by_id[id(variable)] = key
        weakref.finalize(variable, _release, weakref.ref(self), id(variable)).atexit = False
        return key

    def _new_key(self, name: str) -> str:
        # The suffix keeps the key apart from the attributes that a tf.Module has by itself.
        base = name.split(":")[0]
        key, number = f"{base}.residual", 0
        while hasattr(self._residuals, key):
            number += 1
            key = f"{base}.residual_{number}"
        return key


class _KeyOf:
    """The keys of living variables, which have no hash of their own, by their identity.

    (In an object, since a `tf.Module` would take a dict for something to save.)
    """

    def __init__(self) -> None:
        self.by_id: dict[int, str] = {}


def _release(state: "weakref.ref[CompressionState]", variable_id: int) -> None:
    alive = state()
    if alive is not None:
        delattr(alive._residuals, alive._key_of.by_id.pop(variable_id))
