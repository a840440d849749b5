"""The hooks into Keras' layers and variables.

Under Keras 3 each replica updates weights of layers alone: the moving mean and variance of a
BatchNormalization follow the batches of that replica, so that replicas and workers hold different
models. Strategies learn here which weights these are.

Keras 3 was not made for variables on servers that workers share: it knows none in shards, each
`Embedding` would pull its whole table, and it counts steps by reading the number and assigning the
next one, so that steps of several workers get lost.
"""

from typing import Any

import keras
import tensorflow as tf

from tf_gc.keras.hook import Method, hook, hook_in_replica
from tf_gc.keras.strategy import KerasStrategy


def install() -> None:
    """Hooks into Keras' layers and variables."""
    hook(keras.layers.Layer, "_track_variable", _track)
    hook_in_replica(keras.Variable, "assign_add", _assign_add)


def _track(keras_track: Method, layer: Any, variable: Any) -> None:
    # If the layer is not trainable, `keras_track` makes all its weights non-trainable, also
    # those that an optimizer or the program updates, and not the layer itself.
    of_layer = not variable.trainable
    keras_track(layer, variable)
    strategy = tf.distribute.get_strategy()
    if not isinstance(strategy, KerasStrategy):
        return
    if strategy.asynchronous:
        _track_on_server(layer, variable)
    elif of_layer and variable.aggregation == "none" and strategy.layer_state is not None:
        strategy.layer_state.add(variable)  # each replica updates its own copy


def _track_on_server(layer: Any, variable: Any) -> None:
    if not isinstance(variable.value, tf.Variable):
        raise NotImplementedError(
            f"Keras 3 has no layers with variables in shards, such as {variable.path}: leave "
            "variable_partitioner out, or train with tf_keras"
        )
    if isinstance(layer, keras.layers.Embedding):
        variable.value.read_by_rows = True  # by a server, for workers
        # `tf.gather` asks for rows what has this method. A variable of Keras has none.
        variable.sparse_read = variable.value.sparse_read


def _assign_add(strategy: KerasStrategy, keras_add: Method, variable: Any, value: Any) -> Any:
    if not strategy.asynchronous or not variable.value.dtype.is_integer:
        return keras_add(variable, value)
    return variable.value.assign_add(tf.cast(value, variable.value.dtype))
