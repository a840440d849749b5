"""The hook by which a strategy learns which weights layers update by themselves.

Under Keras 3 each replica updates such a weight alone: the moving mean and variance of a
BatchNormalization in each replica follow the batches of that replica. Replicas and workers then
hold different models.
"""

import functools
from typing import Any

import keras
import tensorflow as tf

from tf_gc.keras.keras3 import private
from tf_gc.keras.keras3.asynchronous import note_weight
from tf_gc.keras.strategy import KerasStrategy, strategy_of_replica


def install() -> None:
    """Hooks into Keras' layers; further calls change nothing.

    Raises:
      ImportError: if the installed Keras makes weights in a way that tf_gc does not know.
        Replicas would then silently drift apart.
    """
    layer_class = private.layer_class()
    keras_track = layer_class._track_variable
    if hasattr(keras_track, "hooked_by_tf_gc"):
        return

    @functools.wraps(keras_track)
    def track_variable(self: Any, variable: Any) -> None:
        # If the layer is not trainable, `keras_track` makes all its weights non-trainable, also
        # those that an optimizer or the program updates, and not the layer itself.
        of_layer = not variable.trainable
        keras_track(self, variable)
        strategy = tf.distribute.get_strategy()
        if not isinstance(strategy, KerasStrategy):
            return
        note_weight(strategy, self, variable)
        if not of_layer:
            return
        if variable.aggregation == "none":  # each replica updates its own copy
            strategy.keep_layer_state(variable)

    track_variable.hooked_by_tf_gc = True  # type: ignore[attr-defined]
    layer_class._track_variable = track_variable

    keras_assign = keras.Variable._direct_assign

    @functools.wraps(keras_assign)
    def direct_assign(self: Any, value: Any) -> None:
        strategy = strategy_of_replica()
        if strategy is not None:
            strategy.note_assignment(self)
        keras_assign(self, value)

    keras.Variable._direct_assign = direct_assign
