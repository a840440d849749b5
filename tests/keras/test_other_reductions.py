"""Only gradients are compressed: all other reductions are the stock strategy's, to the bit."""

import functools
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.keras.compressed import AUTO, compressed_strategy
from tests.keras.stock import (
    BATCH,
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
    train = functools.partial(
        fit,
        build=functools.partial(normalized_mlp, True, False),
        optimizer=lambda: keras.optimizers.SGD(0.0),
    )
    # The stock strategy leaves the statistics to the replicas.
    strategy = compressed_strategy(4, AUTO, average_layer_state=False)
    ours = train(strategy)
    assert_same_run(ours, train(stock_strategy(4)))
    assert strategy.traffic is not None
    assert strategy.traffic.bypassed_tensors == 0
    assert len(strategy.compression_state) == len(ours.model.trainable_variables)
    assert all(np.any(v.numpy() != 0) for v in ours.model.non_trainable_variables[:4])


def test_gradients_through_a_synchronized_normalization_equal_stock() -> None:
    """Its backward pass sums over replicas as well, before the gradients are reduced."""

    def local_gradients(strategy: tf.distribute.Strategy) -> list[Any]:
        """Each variable's gradient on each replica, and the sum by a user's own reduction."""
        model, loss = compiled(strategy, functools.partial(normalized_mlp, True)), cross_entropy()

        def gradients(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                value = loss(y, model(x, training=True))
            grads = tape.gradient(value, [v.value for v in model.trainable_variables])
            # Of no gradients to apply: it is not compressed either.
            return grads, tf.distribute.get_replica_context().all_reduce("SUM", grads)

        batches = tf.data.Dataset.from_tensor_slices(data(BATCH)).batch(BATCH)
        run = tf.function(lambda batch: strategy.run(gradients, args=batch))
        results = run(next(iter(strategy.experimental_distribute_dataset(batches))))
        return [
            component.numpy()
            for value in tf.nest.flatten(results)
            for component in strategy.experimental_local_results(value)
        ]

    ours, expected = map(local_gradients, (compressed_strategy(4), stock_strategy(4)))
    assert len(ours) == len(expected) > 0
    for a, b in zip(ours, expected, strict=True):
        assert_same_bits(a, b)
