"""Keras models with embeddings: what is sent, and how they train."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases, matrix
from tests.keras.compressed import compressed_strategy
from tests.keras.stock import BATCH, CLASSES, compiled, cpus, fit, stock_strategy

WORDS = 100
ROWS = tf_gc.Quantized(sparse=True)
NO_WARM_UP = tf_gc.Quantized(warm_up=False, sparse=True)


def embedding(*tables: str) -> keras.Model:
    inputs = keras.Input((6,), dtype="int32")
    rows = [keras.layers.Embedding(WORDS, 32, name=name)(inputs) for name in tables or ("table",)]
    x = keras.layers.Concatenate()(rows) if tables else rows[0]
    return keras.Model(inputs, keras.layers.Dense(CLASSES)(keras.layers.Flatten()(x)))


def words() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.zipf(1.4, size=(4 * BATCH, 6)) % WORDS, rng.integers(CLASSES, size=4 * BATCH)


train = functools.partial(fit, build=embedding, training_data=words(), epochs=2)

SGD = functools.partial(keras.optimizers.SGD, 0.1)
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "global norm": lambda: SGD(momentum=0.9, global_clipnorm=0.05),
    "norm": lambda: SGD(clipnorm=0.05),
    "value": lambda: SGD(clipvalue=0.01),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(SGD(), 64.0),
    "accumulated": lambda: SGD(momentum=0.9, gradient_accumulation_steps=2, global_clipnorm=0.05),
}


@pytest.mark.parametrize(
    "name",
    [
        *("global norm", "accumulated"),
        *(pytest.param(name, marks=matrix) for name in ("norm", "value", "scaled")),
    ],
)
def test_full_precision_is_that_of_others_to_rounding(name: str) -> None:
    """The steps of a warm-up send merged rows, of which these optimizers see no difference."""
    # The stock strategy cannot accumulate, but a process alone can.
    accumulated = name == "accumulated"
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), ROWS, clip_after_sum=accumulated)
    mine = train(strategy, optimizer=OPTIMIZERS[name])
    assert strategy.compression_state.warm_up_steps == (4 if accumulated else 8)
    assert "rows" in strategy.traffic.wire
    other = tf.distribute.get_strategy() if accumulated else stock_strategy()
    expected = train(other, optimizer=OPTIMIZERS[name])
    for a, b in zip(mine.model.get_weights(), expected.model.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_rows_that_no_batch_has_stay_as_they_are() -> None:
    strategy = compressed_strategy(params=NO_WARM_UP)
    x, y = words()
    run = train(strategy, optimizer=OPTIMIZERS["global norm"], training_data=(x % 40, y))
    before = compiled(strategy, embedding).layers[1].get_weights()[0]
    after = run.model.layers[1].get_weights()[0]
    np.testing.assert_array_equal(after[40:], before[40:])
    assert (after[:40] != before[:40]).any()
    assert strategy.traffic.sent_bytes < strategy.traffic.stock_bytes / 2


@pytest.mark.parametrize("option", [{"global_clipnorm": 0.05}, {"gradient_accumulation_steps": 2}])
def test_tables_that_are_not_compressed_stay_dense_where_keras_makes_them_dense(
    option: dict[str, Any],
) -> None:
    """Adam squares what it gets: of rows that are not merged it would be something else."""
    arguments = {
        "build": functools.partial(embedding, "sent", "excluded"),
        "optimizer": lambda: keras.optimizers.Adam(0.01, **option),
    }
    params = tf_gc.Quantized(sparse=True, exclude="excluded")
    mine = train(compressed_strategy(params=params), **arguments)
    clips = "global_clipnorm" in option
    expected = train(stock_strategy() if clips else tf.distribute.get_strategy(), **arguments)
    # A sum in another order may have another sign near zero, and Adam moves by signs.
    for weights, others in zip(mine.model.get_weights(), expected.model.get_weights(), strict=True):
        assert np.mean(np.abs(weights - others) > 1e-4) < 0.01


@cases("option", {"global_clipnorm": 100.0}, {"gradient_accumulation_steps": 2})
def test_a_table_may_be_a_variable_of_tensorflow(option: dict[str, Any]) -> None:
    def trained(strategy: tf.distribute.Strategy) -> Any:
        with strategy.scope():
            table = tf.Variable(tf.ones([WORDS, 32]))
            optimizer = SGD(**option)
            optimizer.build([table])

        def replica_step() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.gather(table, [1, 2]) ** 2) / strategy.num_replicas_in_sync
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])

        step = tf.function(lambda: strategy.run(replica_step))
        for _ in range(4):
            step()
        return table.numpy()

    rows = compressed_strategy(params=ROWS)
    np.testing.assert_allclose(trained(rows), trained(tf.distribute.get_strategy()), rtol=1e-6)
