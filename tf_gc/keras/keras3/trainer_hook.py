"""The hooks into Keras' trainer: replicas and workers may get data of different sizes.

Keras 3 builds a compiled model from the mean of the first batch over all replicas. That fails where
their parts differ in size, as 32 samples on 3 devices do, and for strings and sparse tensors, which
have no mean. Here it builds the model from the batch of one replica, and so it does before
`predict` where XLA compiles, which makes no variables.

Keras ends an epoch after as many steps as a worker's own dataset has batches. If they differ, a
worker leaves the others waiting in a step in which it takes no part. Here all workers run as many
steps as the longest dataset has batches; TensorFlow gives empty batches to those without data.

Under parameter servers `fit` fails, so it is refused.
"""

import contextlib
from typing import Any

import keras
import tensorflow as tf

from tf_gc._compat.lookup import owner_of
from tf_gc.keras.hook import Method, hook
from tf_gc.keras.keras3 import private
from tf_gc.keras.strategy import KerasStrategy, strategy_of


def install(several_workers: bool) -> None:
    """Hooks into Keras' trainer, and into its count of batches if there are several workers."""
    trainer_class = owner_of(private.TRAINER)
    hook(trainer_class, "_maybe_symbolic_build", _build)
    hook(trainer_class, "make_predict_function", _make_predict)
    for method in ("fit", "evaluate", "predict"):
        hook(trainer_class, method, _refuse_under_servers)
    if several_workers:
        iterator_class = owner_of(private.EPOCH_ITERATOR)
        hook(iterator_class, "__init__", _init)
        hook(iterator_class, "reset", _reset)


def _refuse_under_servers(keras_method: Method, trainer: Any, *args: Any, **kwargs: Any) -> Any:
    strategy = strategy_of(trainer)
    if strategy is not None and strategy.asynchronous:
        raise NotImplementedError(
            f"Keras 3 cannot {keras_method.__name__}() under parameter servers. Schedule steps by "
            "tf.distribute.coordinator.ClusterCoordinator(strategy)"
        )
    return keras_method(trainer, *args, **kwargs)


def _build(keras_build: Method, trainer: Any, iterator: Any = None, data_batch: Any = None) -> Any:
    if iterator is not None and strategy_of(trainer) is not None:
        # Until Keras 3.11 it is not iterable itself.
        epoch = iterator if hasattr(iterator, "__iter__") else iterator.enumerate_epoch()
        for *_, batches in epoch:
            data_batch = keras.tree.map_structure(_of_first_replica, next(batches))
            break
        iterator = None
    return keras_build(trainer, iterator=iterator, data_batch=data_batch)


def _make_predict(keras_make: Method, trainer: Any, *args: Any, **kwargs: Any) -> Any:
    made = keras_make(trainer, *args, **kwargs)
    strategy, predict = strategy_of(trainer), trainer.predict_function
    if strategy is None or trainer.built or not trainer.jit_compile:
        return made

    def build_and_predict(batches: Any) -> Any:
        batch = keras.tree.map_structure(_of_first_replica, batches[0])
        x, *_ = keras.utils.unpack_x_y_sample_weight(batch)
        with strategy.scope():
            trainer(keras.tree.map_structure(lambda v: keras.KerasTensor(v.shape, v.dtype), x))
        trainer.predict_function = predict
        return predict(batches)

    trainer.predict_function = build_and_predict
    return build_and_predict


def _of_first_replica(value: Any) -> Any:
    return value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value


def _init(keras_init: Method, iterator: Any, *args: Any, **kwargs: Any) -> None:
    keras_init(iterator, *args, **kwargs)
    _agree(iterator)


def _reset(keras_reset: Method, iterator: Any) -> None:
    keras_reset(iterator)
    if hasattr(iterator, "_distributed_dataset"):  # not while Keras constructs it
        _agree(iterator)


def _agree(iterator: Any) -> None:
    """Sets the number of batches to the largest of any worker's, `None` if one is unknown."""
    strategy = iterator._distribute_strategy
    if not isinstance(strategy, KerasStrategy) or strategy.workers.count == 1:
        return
    # Keras counted the whole dataset, and not the part of it that this worker gets.
    unsharded = getattr(iterator._distributed_dataset, "unsharded", False)
    batches = None if unsharded else iterator._num_batches
    batch_size = None
    with contextlib.suppress(AttributeError, IndexError):  # distributed, or without batches
        batch_size = iterator.data_adapter.batch_size
    # The first one is called steps in evaluate and predict, and validation_steps in fit.
    doing = (
        f"begins to read data, steps_per_epoch={iterator.steps_per_epoch}, "
        f"steps_per_execution={iterator.steps_per_execution}, batch_size={batch_size}"
    )
    unknown, longest = strategy.workers.largest(doing, batches is None, batches or 0)
    iterator._num_batches = None if unknown else longest
