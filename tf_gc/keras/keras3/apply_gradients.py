"""Keras' optimizer step where it depends on the step's number: all replicas decide together.

With `gradient_accumulation_steps` and with `ema_overwrite_frequency` Keras decides in a `cond`
inside each replica. Replicas cannot meet there, so it fails under a strategy. Here they meet first,
decide once, and run the branch together.
"""

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

        def overwrite(_: tf.distribute.Strategy) -> None:
            tf.cond(
                tf.equal((optimizer.iterations + 1) % optimizer.ema_overwrite_frequency, 0),
                lambda: optimizer._overwrite_model_variables_with_average_value(trainable),
                lambda: None,
            )

        tf.distribute.get_replica_context().merge_call(overwrite)


def _accumulate_or_update(
    strategy: KerasStrategy, optimizer: Any, gradients: list[Any], variables: list[Any]
) -> None:
    steps = optimizer.gradient_accumulation_steps
    sums = [optimizer._accumulated_gradients[optimizer._get_variable_index(v)] for v in variables]
    # Keras accumulates a dense table, of which only some rows are not zero.
    sends_rows = [
        isinstance(gradient, tf.IndexedSlices) and strategy.compresses_rows_of(tf_variable(v))
        for gradient, v in zip(gradients, variables, strict=True)
    ]

    def update(gradients: list[Any]) -> None:
        means = [(g + total) / steps for g, total in zip(gradients, sums, strict=True)]
        sent = [_rows(mean) if rows else mean for mean, rows in zip(means, sends_rows, strict=True)]
        _update(optimizer, sent, variables)
        optimizer._backend_reset_gradient_accumulators()

    def accumulate(gradients: list[Any]) -> None:
        optimizer._backend_increment_gradient_accumulators(gradients, sums)

    def decide(strategy: tf.distribute.Strategy, gradients: Any) -> None:
        run = strategy.extended.call_for_each_replica
        tf.cond(
            tf.equal((optimizer._iterations + 1) % steps, 0),
            lambda: run(update, args=(gradients,)),
            lambda: run(accumulate, args=(gradients,)),
        )

    tf.distribute.get_replica_context().merge_call(decide, args=(gradients,))


def _rows(table: tf.Tensor) -> tf.IndexedSlices:
    """Returns the rows that are not zero."""
    indices = tf.where(tf.reduce_any(tf.not_equal(table, 0), axis=range(1, table.shape.rank)))[:, 0]
    return tf.IndexedSlices(tf.gather(table, indices), indices, tf.shape(table, tf.int64))


def _update(optimizer: Any, gradients: list[Any], variables: list[Any]) -> None:
    clipped = optimizer._clip_gradients(gradients)
    optimizer._apply_weight_decay(variables)
    optimizer._backend_update_step(clipped, variables, optimizer.learning_rate)
