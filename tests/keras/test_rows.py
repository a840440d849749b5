"""Keras models with embeddings: what is sent, and how they train."""

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases, matrix
from tests.keras.compressed import compressed_strategy
from tests.keras.stock import BATCH, CLASSES, compiled, fit, stock_strategy

WORDS = 100


def embedding() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            keras.layers.Embedding(WORDS, 32),
            keras.layers.Flatten(),
            keras.layers.Dense(CLASSES),
        ]
    )


def words() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.zipf(1.4, size=(4 * BATCH, 6)) % WORDS, rng.integers(CLASSES, size=4 * BATCH)


train = functools.partial(fit, build=embedding, training_data=words(), epochs=2)

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "global norm": lambda: keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.05),
    "norm": lambda: keras.optimizers.SGD(0.1, clipnorm=0.05),
    "value": lambda: keras.optimizers.SGD(0.1, clipvalue=0.01),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), 64.0),
}


@cases("name", *OPTIMIZERS)
def test_full_precision_is_that_of_the_stock_strategy_to_rounding(name: str) -> None:
    """The steps of a warm-up send merged rows, of which these optimizers see no difference."""
    strategy = compressed_strategy(params=tf_gc.Quantized(sparse=True))
    mine = train(strategy, optimizer=OPTIMIZERS[name])
    assert strategy.compression_state.warm_up_steps == 8
    assert strategy.traffic is not None
    assert "rows" in strategy.traffic.wire
    stock = train(stock_strategy(), optimizer=OPTIMIZERS[name])
    for weights, expected in zip(mine.model.get_weights(), stock.model.get_weights(), strict=True):
        np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-6)


@cases("momentum, clipping", (0.9, {"global_clipnorm": 0.05}), (0.0, {}))
def test_accumulated_rows_are_sent_as_rows(momentum: float, clipping: dict[str, Any]) -> None:
    def optimizer() -> Any:
        arguments = {"momentum": momentum, "gradient_accumulation_steps": 2, **clipping}
        return keras.optimizers.SGD(0.1, **arguments)

    strategy = tf_gc.CompressedMirroredStrategy(
        ["CPU:0", "CPU:1"], tf_gc.Quantized(sparse=True), clip_after_sum=True
    )
    mine = train(strategy, optimizer=optimizer)
    alone = train(tf.distribute.get_strategy(), optimizer=optimizer)
    assert strategy.compression_state.warm_up_steps == 4
    assert strategy.traffic is not None
    assert "rows" in strategy.traffic.wire
    for weights, expected in zip(mine.model.get_weights(), alone.model.get_weights(), strict=True):
        np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-6)


def test_rows_that_no_batch_has_stay_as_they_are() -> None:
    strategy = compressed_strategy(params=tf_gc.Quantized(warm_up=False, sparse=True))
    x, y = words()
    run = train(strategy, optimizer=OPTIMIZERS["global norm"], training_data=(x % 40, y))
    before = compiled(strategy, embedding).layers[0].get_weights()[0]
    after = run.model.layers[0].get_weights()[0]
    np.testing.assert_array_equal(after[40:], before[40:])
    assert (after[:40] != before[:40]).any()
    assert strategy.traffic is not None
    assert strategy.traffic.sent_bytes < strategy.traffic.stock_bytes / 2


@matrix
def test_it_trains_as_in_full_precision() -> None:
    x, _ = words()
    target = (x.sum(axis=1) % CLASSES).astype(np.int32)
    # To begin an epoch takes longer than its steps: five epochs of many steps, not forty of four.
    arguments = {"training_data": (np.tile(x, (8, 1)), np.tile(target, 8)), "epochs": 5}
    optimizer = functools.partial(keras.optimizers.Adam, 0.01)
    stock = train(stock_strategy(), optimizer=optimizer, **arguments)
    assert stock.losses[-1] < 0.2 * stock.losses[0]
    strategy = compressed_strategy(params=tf_gc.Quantized(sparse=True))
    mine = train(strategy, optimizer=optimizer, steps_per_execution=3, **arguments)
    assert mine.losses[-1] < 1.1 * stock.losses[-1]


def test_a_tied_table_is_dense() -> None:
    strategy = tf_gc.CompressedMirroredStrategy(
        ["CPU:0", "CPU:1"], tf_gc.Quantized(warm_up=False, sparse=True)
    )
    with strategy.scope():
        table = tf.Variable(tf.random.stateless_normal((WORDS, 32), (1, 2)))

    @tf.function
    def step() -> Any:
        def replica_step() -> Any:
            with tf.GradientTape() as tape:
                hidden = tf.gather(table, tf.constant([1, 1, 7]))
                loss = tf.reduce_sum(tf.matmul(hidden, table, transpose_b=True) ** 2)
            (gradient,) = tape.gradient(loss, [table])
            return tf_gc.all_reduce_gradients([(gradient, table)])[0]

        return strategy.run(replica_step)

    total = strategy.experimental_local_results(step())[0]
    assert total.shape == (WORDS, 32)
    assert strategy.traffic is not None
    assert strategy.traffic.wire == "packed"


@matrix
@pytest.mark.parametrize("after", [4, 1])
def test_a_backup_has_what_was_not_sent_of_rows(after: int, tmp_path: Path) -> None:
    def run(replicas: int, stop: bool) -> list[Any]:
        strategy = compressed_strategy(replicas, tf_gc.Quantized(warm_up=False, sparse=True))
        model = compiled(strategy, embedding)
        totals = []

        def begin(epoch: int, logs: Any = None) -> None:
            table = model.layers[0].embeddings.value
            totals.append(strategy.compression_state.total(table))
            if stop and epoch == 1:
                raise InterruptedError

        backup = tf_gc.keras.BackupAndRestore(tmp_path)
        note = keras.callbacks.LambdaCallback(on_epoch_begin=begin)
        with contextlib.suppress(InterruptedError):
            model.fit(*words(), batch_size=BATCH, epochs=2, callbacks=[backup, note], verbose=0)
        return totals

    _, before = run(2, stop=True)
    (restored,) = run(after, stop=False)
    assert before.any()
    np.testing.assert_allclose(restored, before, rtol=1e-6, atol=1e-9)


@matrix
@pytest.mark.parametrize("option", ["global_clipnorm", "gradient_accumulation_steps"])
def test_tables_that_are_not_compressed_stay_dense_where_keras_makes_them_dense(
    option: str,
) -> None:
    """Adam squares what it gets: of rows that are not merged it would be something else."""

    def build() -> keras.Model:
        inputs = keras.Input((6,), dtype="int32")
        tables = [keras.layers.Embedding(WORDS, 32, name=name) for name in ("sent", "excluded")]
        x = keras.layers.Concatenate()([table(inputs) for table in tables])
        return keras.Model(inputs, keras.layers.Dense(CLASSES)(keras.layers.Flatten()(x)))

    def optimizer() -> Any:
        return keras.optimizers.Adam(0.01, **{option: 2 if option[:4] == "grad" else 0.05})

    params = tf_gc.Quantized(sparse=True, exclude="excluded")
    clip = option == "global_clipnorm"
    mine = train(compressed_strategy(params=params), build=build, optimizer=optimizer)
    other = stock_strategy() if clip else tf.distribute.get_strategy()
    expected = train(other, build=build, optimizer=optimizer)
    # What is summed in another order may have another sign near zero, and Adam moves by signs.
    for weights, others in zip(mine.model.get_weights(), expected.model.get_weights(), strict=True):
        assert np.mean(np.abs(weights - others) > 1e-4) < 0.01


@cases("option", {"global_clipnorm": 100.0}, {"gradient_accumulation_steps": 2})
def test_a_table_may_be_a_variable_of_tensorflow(option: dict[str, Any]) -> None:
    def trained(strategy: tf.distribute.Strategy) -> Any:
        with strategy.scope():
            table = tf.Variable(tf.ones([WORDS, 32]))
            optimizer = keras.optimizers.SGD(0.1, **option)
            optimizer.build([table])

        def replica_step() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.gather(table, [1, 2]) ** 2) / strategy.num_replicas_in_sync
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])

        step = tf.function(lambda: strategy.run(replica_step))
        for _ in range(4):
            step()
        return table.numpy()

    rows = compressed_strategy(params=tf_gc.Quantized(sparse=True))
    np.testing.assert_allclose(trained(rows), trained(tf.distribute.get_strategy()), rtol=1e-6)
