"""The hook by which a strategy learns which weights layers update by themselves.

Under Keras 3 each replica updates such a weight alone: the moving mean and variance of a
BatchNormalization in each replica follow the batches of that replica. Replicas and workers then
hold different models.
"""

import functools
from typing import Any, Protocol, runtime_checkable

import keras
import tensorflow as tf

from tf_gc import _compat


@runtime_checkable
class KeepsLayerState(Protocol):
    """A strategy that makes the state of layers the same on all replicas."""

    def keep_layer_state(self, weight: Any) -> None:
        """Notes a non-trainable `keras.Variable` that was made under the strategy."""

    def note_assignment(self, weight: Any) -> None:
        """Notes that a replica of the strategy assigns a `keras.Variable`."""


def install() -> None:
    """Hooks into Keras' layers; further calls change nothing.

    Raises:
      ImportError: if the Keras at hand makes weights in a way that is not known, so that
        replicas would silently drift apart.
    """
    layer_class = _compat.keras_layer_class()
    keras_track = layer_class._track_variable
    if hasattr(keras_track, "hooked_by_tf_gc"):
        return

    @functools.wraps(keras_track)
    def track_variable(self: Any, variable: Any) -> None:
        # Keras may make the variable non-trainable now, because its layer is. An optimizer, or
        # the program, updates a weight of that kind, and not the layer.
        of_layer = not variable.trainable
        keras_track(self, variable)
        strategy = tf.distribute.get_strategy()
        if of_layer and isinstance(strategy, KeepsLayerState):
            strategy.keep_layer_state(variable)

    track_variable.hooked_by_tf_gc = True  # type: ignore[attr-defined]
    layer_class._track_variable = track_variable

    keras_assign = keras.Variable._direct_assign

    @functools.wraps(keras_assign)
    def direct_assign(self: Any, value: Any) -> None:
        strategy = tf.distribute.get_strategy()
        if isinstance(strategy, KeepsLayerState) and not tf.distribute.in_cross_replica_context():
            strategy.note_assignment(self)
        keras_assign(self, value)

    keras.Variable._direct_assign = direct_assign
