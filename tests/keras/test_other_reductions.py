"""Only gradients are compressed: all other reductions are the stock strategy's, to the bit."""

import functools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.keras.compressed import AUTO, FIXED, compressed_strategy
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

compressions = pytest.mark.parametrize("codec", [AUTO, FIXED], ids=["auto", "fixed"])


@compressions
@pytest.mark.parametrize(("replicas", "synchronized"), [(2, True), (4, False)])
def test_metrics_and_statistics_of_the_first_step_equal_stock(
    replicas: int, synchronized: bool, codec: tf_gc.params.CompressionParams
) -> None:
    x, y = data(BATCH)
    # The stock strategy leaves the statistics to the replicas.
    strategy = compressed_strategy(replicas, codec, average_layer_state=False)
    results = []
    for each in (strategy, stock_strategy(replicas)):
        model = compiled(each, functools.partial(normalized_mlp, synchronized))
        history = model.fit(x, y, batch_size=BATCH, verbose=0).history
        results.append((history, [v.numpy() for v in model.non_trainable_variables]))
    (ours, our_statistics), (expected, statistics) = results
    assert ours == expected
    assert strategy.traffic is not None
    assert strategy.traffic.bypassed_tensors == 0
    assert np.any(statistics[0] != 0)
    for a, b in zip(our_statistics, statistics, strict=True):
        assert_same_bits(a, b)


@pytest.mark.parametrize(
    ("synchronized", "codec"), [(True, AUTO), (False, FIXED)], ids=["sync-auto", "local-fixed"]
)
def test_runs_that_update_no_weight_equal_stock(
    synchronized: bool, codec: tf_gc.params.CompressionParams
) -> None:
    build = functools.partial(normalized_mlp, synchronized)

    def optimizer() -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(0.0)

    strategy = compressed_strategy(2, codec, average_layer_state=False)
    assert_same_run(fit(strategy, build, optimizer), fit(stock_strategy(2), build, optimizer))
    assert len(strategy.compression_state) > 0


def test_gradients_through_a_synchronized_normalization_equal_stock() -> None:
    """Its backward pass sums over replicas as well, before the gradients are reduced."""
    strategies = compressed_strategy(4), stock_strategy(4)
    ours, expected = (_local_gradients(strategy) for strategy in strategies)
    assert len(ours) == len(expected) > 0
    for a, b in zip(ours, expected, strict=True):
        assert_same_bits(a, b)


def _local_gradients(strategy: tf.distribute.Strategy) -> list[Array]:
    """Returns each variable's gradient on each replica, before any reduction of gradients."""
    model = compiled(strategy, functools.partial(normalized_mlp, synchronized=True))
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
