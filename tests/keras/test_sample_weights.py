"""Weights that hold samples get one warning, running statistics none."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tests.cases import matrix
from tests.keras import compressed, stock
from tests.keras.compressed import components

SHAPE = (8, 3)

Update = Callable[[Any, Any, Any], None]


class Memory(keras.layers.Layer):
    """A layer with a float weight, which an update gives a new value from keys [2, 3]."""

    def __init__(self, update: Update, **of_weight: Any) -> None:
        super().__init__(name=update.__name__)
        self.update, self.of_weight = update, of_weight

    def build(self, shape: tuple[int, ...]) -> None:
        self.queue = self.add_weight(
            shape=SHAPE, initializer="ones", trainable=False, **self.of_weight
        )
        self.pointer = self.add_weight(initializer="zeros", dtype="int32", trainable=False)

    def call(self, keys: Any) -> Any:
        self.update(self.queue, keys, self.pointer)
        self.pointer.assign((self.pointer + 2) % SHAPE[0])
        return keys


def append(queue: Any, keys: Any, pointer: Any) -> None:
    queue.assign(ops.concatenate([queue[2:], keys], axis=0))


def prepend(queue: Any, keys: Any, pointer: Any) -> None:
    queue.assign(ops.concatenate([keys, ops.convert_to_tensor(queue)], axis=0)[: SHAPE[0]])


def append_normalized(queue: Any, keys: Any, pointer: Any) -> None:
    columns = ops.concatenate([ops.transpose(queue)[:, 2:], ops.transpose(keys)], axis=1)
    queue.assign(ops.transpose(ops.stop_gradient(columns)) / 2.0)


def write_slice(queue: Any, keys: Any, pointer: Any) -> None:
    start = tf.stack([tf.convert_to_tensor(pointer.value), 0])
    queue.assign(ops.slice_update(ops.convert_to_tensor(queue), start, keys))


def write_rows(queue: Any, keys: Any, pointer: Any) -> None:
    rows = ops.reshape(pointer + ops.arange(2), (2, 1))
    queue.assign(ops.scatter_update(queue, rows, keys))


def write_part_of_variable(queue: Any, keys: Any, pointer: Any) -> None:
    queue.value[:2].assign(keys)


def scatter_into_variable(queue: Any, keys: Any, pointer: Any) -> None:
    queue.value.scatter_update(tf.IndexedSlices(keys, [0, 1]))


def moving_average(queue: Any, keys: Any, pointer: Any) -> None:
    queue.assign(0.9 * queue + 0.1 * ops.mean(keys))


def moving_average_of_parts(queue: Any, keys: Any, pointer: Any) -> None:
    both = ops.concatenate([ops.tile(keys, (2, 1)), ops.ones((4, 3))], axis=0)
    queue.assign(queue * 0.9 + both * 0.1)


def moving_average_of_what_it_normalizes(queue: Any, keys: Any, pointer: Any) -> None:
    both = ops.concatenate([keys - queue[:2], keys], axis=0)  # a layer that is called twice
    queue.assign(0.9 * queue + 0.1 * ops.mean(both, axis=0))


def prototypes(queue: Any, keys: Any, pointer: Any) -> None:
    rows = ops.convert_to_tensor([[1], [4]])
    old = ops.take(queue, [1, 4], axis=0)
    queue.assign(ops.scatter_update(queue, rows, 0.9 * old + 0.1 * keys))


def counts(queue: Any, keys: Any, pointer: Any) -> None:
    queue.value.scatter_add(tf.IndexedSlices(keys, [0, 1]))


def first_batch_or_average(queue: Any, keys: Any, pointer: Any) -> None:
    mean = ops.zeros(SHAPE) + ops.mean(keys)
    queue.assign(ops.where(pointer == 0, mean, 0.9 * queue + 0.1 * mean))


def last_mean(queue: Any, keys: Any, pointer: Any) -> None:
    queue.assign(ops.zeros(SHAPE) + ops.mean(keys))


def run(
    *updates: Update, gather: bool = False, **of_weight: Any
) -> tuple[tf.distribute.Strategy, list[Memory]]:
    strategy = compressed.compressed_strategy()
    with strategy.scope():
        layers = [Memory(update, **of_weight) for update in updates]
        for layer in layers:
            layer.build((2, 3))

    def replica_step() -> None:
        replica = tf.distribute.get_replica_context()
        keys = tf.fill([2, 3], 2.0 * tf.cast(replica.replica_id_in_sync_group + 1, tf.float32))
        keys = replica.all_gather(keys, axis=0)[:2] if gather else keys
        for layer in layers:
            layer(keys)

    @tf.function
    def step(again: tf.Tensor) -> None:
        strategy.run(replica_step)

    for shape in ((), (), (2,)):  # the last one traces it again
        step(tf.zeros(shape))
    return strategy, layers


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    return [each for each in log.messages if "hold samples" in each]


SAMPLES = [
    append,
    prepend,
    append_normalized,
    write_slice,
    write_rows,
    write_part_of_variable,
    scatter_into_variable,
]
STATISTICS = [
    moving_average,
    moving_average_of_parts,
    moving_average_of_what_it_normalizes,
    prototypes,
    counts,
    first_batch_or_average,
    last_mean,
]


def test_samples_get_one_warning_and_statistics_none(caplog: pytest.LogCaptureFixture) -> None:
    run(*SAMPLES, *STATISTICS)
    messages = warnings(caplog)
    assert len(messages) == len(SAMPLES)
    for update in SAMPLES:
        (message,) = [m for m in messages if m.startswith(f"tf_gc: {update.__name__}/")]
        assert "all_gather" in message


@matrix
def test_layers_of_keras_get_none(caplog: pytest.LogCaptureFixture) -> None:
    strategy = compressed.compressed_strategy()
    with strategy.scope():
        inputs = keras.Input(batch_shape=(2, 4, 3))
        x = keras.layers.BatchNormalization()(inputs)
        x = keras.layers.BatchNormalization(**stock.RENORM)(x)
        x = keras.layers.SpectralNormalization(keras.layers.Dense(3))(x)
        recurrent = keras.layers.LSTM(2, dropout=0.5, stateful=True)
        model = keras.Model(inputs, keras.layers.Bidirectional(recurrent)(x))
        model.compile("sgd", "mse")
    x = np.ones((8, 4, 3), np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, np.zeros((8, *model.output_shape[1:])))).batch(4)
    model.fit(data, epochs=2, verbose=0)
    assert warnings(caplog) == []


def test_what_is_averaged_and_what_the_warning_advises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    strategy, (layer,) = run(append)
    compressed.assert_replicas_agree(strategy, [layer.queue])
    np.testing.assert_array_equal(components(layer.queue)[0][-1], np.full(3, 3.0))  # of 2 and 4
    caplog.clear()
    for options in ({"gather": True}, {"aggregation": "only_first_replica"}):
        strategy, (layer,) = run(append, **options)
        compressed.assert_replicas_agree(strategy, [layer.queue])
        np.testing.assert_array_equal(components(layer.queue)[0][-1], np.full(3, 2.0))
