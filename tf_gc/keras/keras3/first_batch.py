"""Keras builds a model from the first batch of one replica.

Keras 3 builds a compiled model before its first step, and takes the mean of the first batch over
all replicas to learn shapes and dtypes. That fails where the parts of the replicas differ in size,
as 32 samples on 3 devices do, and for strings and sparse tensors, which have no mean.
"""

import functools
from typing import Any

import keras
import tensorflow as tf

from tf_gc.keras.keras3 import private
from tf_gc.keras.strategy import KerasStrategy


def install() -> None:
    """Hooks into the trainer of Keras' models; further calls change nothing.

    Raises:
      ImportError: if the installed Keras builds models in a way that tf_gc does not know.
    """
    trainer_class = private.trainer_class()
    keras_build = trainer_class._maybe_symbolic_build
    if hasattr(keras_build, "hooked_by_tf_gc"):
        return

    @functools.wraps(keras_build)
    def maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        if iterator is not None and isinstance(self.distribute_strategy, KerasStrategy):
            # Until Keras 3.11 it is not iterable itself.
            epoch = iterator if hasattr(iterator, "__iter__") else iterator.enumerate_epoch()
            for *_, batches in epoch:
                data_batch = keras.tree.map_structure(_of_first_replica, next(batches))
                break
            iterator = None
        return keras_build(self, iterator=iterator, data_batch=data_batch)

    maybe_symbolic_build.hooked_by_tf_gc = True  # type: ignore[attr-defined]
    trainer_class._maybe_symbolic_build = maybe_symbolic_build


def _of_first_replica(value: Any) -> Any:
    return value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value
