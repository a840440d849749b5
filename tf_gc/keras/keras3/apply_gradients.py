"""Keras' optimizer step where it depends on the step's number: all replicas decide together.

With `gradient_accumulation_steps` and with `ema_overwrite_frequency` Keras decides in a `cond`
inside each replica. Replicas cannot meet there, so it fails under a strategy. Here they meet first,
decide once, and run the branch together.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_gc.keras.strategy import KerasStrategy
from tf_gc.keras.variables import tf_variable


def needs_decision(optimizer: Any) -> bool:
    """Returns whether it depends on a step's number what the optimizer does in that step."""
    return bool(
        optimizer.gradient_accumulation_steps
        or (optimizer.use_ema and optimizer.ema_overwrite_frequency)
    )


def apply_gradients(
    strategy: KerasStrategy, optimizer: Any, gradients: list[Any], variables: list[Any]
) -> None:
    """Does what Keras' `_backend_apply_gradients` does, in a replica context.

    With `gradient_accumulation_steps`, only the steps that update the variables send gradients.
    """
    if optimizer.gradient_accumulation_steps:
        _accumulate_or_update(strategy, optimizer, gradients, variables)
    else:
        _update(optimizer, gradients, variables)
    if not optimizer.use_ema:
        return
    trainable = optimizer._trainable_variables
    optimizer._update_model_variables_moving_average(trainable)
    if optimizer.ema_overwrite_frequency:
        _decide(
            lambda: (optimizer.iterations + 1) % optimizer.ema_overwrite_frequency,
            lambda _: optimizer._overwrite_model_variables_with_average_value(trainable),
            lambda _: None,
        )


def _accumulate_or_update(
    strategy: KerasStrategy, optimizer: Any, gradients: list[Any], variables: list[Any]
) -> None:
    steps = optimizer.gradient_accumulation_steps
    accumulators = [
        optimizer._accumulated_gradients[optimizer._get_variable_index(variable)]
        for variable in variables
    ]
    keeps = [strategy.compresses_rows_of(tf_variable(variable)) for variable in variables]

    def update(gradients: list[Any]) -> None:
        means = [(g + total) / steps for g, total in zip(gradients, accumulators, strict=True)]
        # Keras accumulates a dense table, of which only some rows are not zero.
        means = [
            _rows_that_are_not_zero(mean)
            if kept and isinstance(gradient, tf.IndexedSlices)
            else mean
            for gradient, mean, kept in zip(gradients, means, keeps, strict=True)
        ]
        _update(optimizer, means, variables)
        optimizer._backend_reset_gradient_accumulators()

    def accumulate(gradients: list[Any]) -> None:
        optimizer._backend_increment_gradient_accumulators(gradients, accumulators)

    def on_all_replicas(step: Callable[[list[Any]], None]) -> Callable[[Any], None]:
        extended = tf.distribute.get_strategy().extended
        return lambda values: extended.call_for_each_replica(step, args=(values,))

    _decide(
        lambda: (optimizer._iterations + 1) % steps,
        on_all_replicas(update),
        on_all_replicas(accumulate),
        gradients,
    )


def _rows_that_are_not_zero(table: tf.Tensor) -> tf.IndexedSlices:
    indices = tf.where(tf.reduce_any(tf.not_equal(table, 0), axis=range(1, table.shape.rank)))[:, 0]
    return tf.IndexedSlices(tf.gather(table, indices), indices, tf.shape(table, tf.int64))


def _update(optimizer: Any, gradients: list[Any], variables: list[Any]) -> None:
    clipped = optimizer._clip_gradients(gradients)
    optimizer._apply_weight_decay(variables)
    optimizer._backend_update_step(clipped, variables, optimizer.learning_rate)


def _decide(
    remainder: Callable[[], tf.Tensor],
    if_zero: Callable[[Any], None],
    otherwise: Callable[[Any], None],
    values: Any = None,
) -> None:
    """Lets the replicas meet, and calls one of two functions with the `values` of all.

    The remainder is the same in all replicas.
    """

    def decide(_: tf.distribute.Strategy, values: Any) -> None:
        branches = (functools.partial(branch, values) for branch in (if_zero, otherwise))
        tf.cond(tf.equal(remainder(), 0), *branches)

    tf.distribute.get_replica_context().merge_call(decide, args=(values,))
