"""Keras 3 where workers share variables on servers, which it was not made for.

Its `fit` fails there, it knows no variables in shards, each `Embedding` would pull its whole table,
and it counts steps by reading the number and assigning the next one: with several workers, steps
get lost.
"""

import functools
from typing import Any

import keras
import tensorflow as tf

from tf_gc._compat.lookup import owner_of
from tf_gc.keras.keras3 import private
from tf_gc.keras.strategy import KerasStrategy, strategy_of_replica

_HOW_TO_TRAIN = """\
Keras 3 cannot {method}() under parameter servers. Schedule steps instead:

    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    batches = iter(coordinator.create_per_worker_dataset(dataset_fn))

    @tf.function
    def step(batches):
        def replica_fn(x, y):
            with tf.GradientTape() as tape:
                loss = loss_fn(y, model(x, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return loss
        return strategy.run(replica_fn, args=next(batches))

    for _ in range(steps):
        loss = coordinator.schedule(step, args=(batches,))
    coordinator.join()
"""


def install() -> None:
    """Hooks into Keras' trainer and variables; further calls change nothing.

    Raises:
      ImportError: if the installed Keras trains or counts in a way that tf_gc does not know.
    """
    trainer_class = owner_of(private.TRAINER)
    if hasattr(trainer_class.fit, "hooked_by_tf_gc"):
        return
    for method in ("fit", "evaluate", "predict"):
        setattr(trainer_class, method, _refusing(method, getattr(trainer_class, method)))

    keras_add = keras.Variable.assign_add

    @functools.wraps(keras_add)
    def assign_add(self: Any, value: Any) -> Any:
        strategy = strategy_of_replica()
        if strategy is None or not strategy.asynchronous or not self.value.dtype.is_integer:
            return keras_add(self, value)
        return self.value.assign_add(tf.cast(value, self.value.dtype))

    keras.Variable.assign_add = assign_add


def _refusing(method: str, keras_method: Any) -> Any:
    """Returns a method of the trainer that fails under asynchronous strategies."""

    @functools.wraps(keras_method)
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = self.distribute_strategy
        if isinstance(strategy, KerasStrategy) and strategy.asynchronous:
            raise NotImplementedError(_HOW_TO_TRAIN.format(method=method))
        return keras_method(self, *args, **kwargs)

    refuse.hooked_by_tf_gc = True  # type: ignore[attr-defined]
    return refuse


def note_weight(strategy: KerasStrategy, layer: Any, weight: Any) -> None:
    """Notes a weight that a layer has made under a strategy.

    Raises:
      NotImplementedError: if the weight is in shards.
    """
    if not strategy.asynchronous:
        return
    if not isinstance(weight.value, tf.Variable):
        raise NotImplementedError(
            f"Keras 3 has no layers with variables in shards, such as {weight.path}: leave "
            "variable_partitioner out, or train with tf_keras"
        )
    if isinstance(layer, keras.layers.Embedding):
        strategy.note_table(weight.value)
        # `tf.gather` asks for rows what has this method. A variable of Keras has none.
        weight.sparse_read = weight.value.sparse_read
