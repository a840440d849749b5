"""Only gradients are compressed: all other reductions are the stock strategy's, to the bit."""

import functools
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.keras.compressed import AUTO, compressed_strategy
from tests.keras.stock import (
    BATCH,
    Array,
    assert_same_bits,
    assert_same_run,
    compiled,
    cross_entropy,
    data,
    fit,
    normalized_mlp,
    stock_strategy,
)


def test_runs_that_update_no_weight_equal_stock() -> None:
    """So losses, metrics and statistics of every step are equal."""
    build = functools.partial(normalized_mlp, True, False)

    def optimizer() -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(0.0)

    # The stock strategy leaves the statistics to the replicas.
    strategy = compressed_strategy(4, AUTO, average_layer_state=False)
    ours = fit(strategy, build, optimizer)
    assert_same_run(ours, fit(stock_strategy(4), build, optimizer))
    assert strategy.traffic is not None
    assert strategy.traffic.bypassed_tensors == 0
    assert len(strategy.compression_state) == len(ours.model.trainable_variables)
    assert all(np.any(v.numpy() != 0) for v in ours.model.non_trainable_variables[:4])


def test_gradients_through_a_synchronized_normalization_equal_stock() -> None:
    """Its backward pass sums over replicas as well, before the gradients are reduced."""
    strategies = compressed_strategy(4), stock_strategy(4)
    ours, expected = (_local_gradients(strategy) for strategy in strategies)
    assert len(ours) == len(expected) > 0
    for a, b in zip(ours, expected, strict=True):
        assert_same_bits(a, b)


def _local_gradients(strategy: tf.distribute.Strategy) -> list[Array]:
    """Returns each variable's gradient on each replica, before any reduction of gradients."""
    model = compiled(strategy, functools.partial(normalized_mlp, True))
    loss = cross_entropy()

    def gradients(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        grads = tape.gradient(value, [v.value for v in model.trainable_variables])
        # This reduction is a user's, of no gradients to apply: it is not compressed either.
        total = tf.distribute.get_replica_context().all_reduce("SUM", grads)
        return grads, total

    dataset = strategy.experimental_distribute_dataset(
        tf.data.Dataset.from_tensor_slices(data(BATCH)).batch(BATCH)
    )
    results = tf.function(lambda batch: strategy.run(gradients, args=batch))(next(iter(dataset)))
    return [
        component.numpy()
        for value in tf.nest.flatten(results)
        for component in strategy.experimental_local_results(value)
    ]
