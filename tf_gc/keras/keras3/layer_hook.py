"""The hook by which a strategy learns which weights layers update by themselves.

Under Keras 3 each replica updates such a weight alone: the moving mean and variance of a
BatchNormalization in each replica follow the batches of that replica. Replicas and workers then
hold different models.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tf_gc.keras.hook import hook
from tf_gc.keras.keras3.asynchronous import note_weight
from tf_gc.keras.strategy import KerasStrategy, strategy_of_replica


@functools.cache
def install() -> None:
    """Hooks into Keras' layers and variables."""
    hook(keras.layers.Layer, "_track_variable", _track)
    hook(keras.Variable, "_direct_assign", _assign)


def _track(keras_track: Callable[..., None], layer: Any, variable: Any) -> None:
    # If the layer is not trainable, `keras_track` makes all its weights non-trainable, also
    # those that an optimizer or the program updates, and not the layer itself.
    of_layer = not variable.trainable
    keras_track(layer, variable)
    strategy = tf.distribute.get_strategy()
    if not isinstance(strategy, KerasStrategy):
        return
    note_weight(strategy, layer, variable)
    if of_layer and variable.aggregation == "none":  # each replica updates its own copy
        strategy.keep_layer_state(variable)


def _assign(keras_assign: Callable[..., None], variable: Any, value: Any) -> None:
    strategy = strategy_of_replica()
    if strategy is not None:
        strategy.note_assignment(variable)
    keras_assign(variable, value)
