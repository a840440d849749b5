"""Weights that hold samples get one warning, running statistics none."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tests.cases import matrix
from tests.keras import compressed, stock
from tests.keras.compressed import components
from tf_gc.keras.variables import tf_variable
from tf_gc.strategies.sample_weights import written_samples

SHAPE = (8, 3)

# Gives a weight a new value from keys [2, 3], with the number of the first row to replace.
Update = Callable[[Any, Any, Any], Any]


def write_slice(queue: Any, keys: Any, row: Any) -> None:
    start = tf.stack([tf.convert_to_tensor(row.value), 0])
    queue.assign(ops.slice_update(ops.convert_to_tensor(queue), start, keys))


def write_rows(queue: Any, keys: Any, row: Any) -> None:
    rows = ops.reshape(row + ops.arange(2), (2, 1))
    queue.assign(ops.scatter_update(queue, rows, keys))


def append_in_steps(queue: Any, keys: Any, row: Any) -> None:
    columns = ops.concatenate([ops.transpose(queue)[:, 2:], ops.transpose(keys)], axis=1)
    for keep in (
        ops.stop_gradient,
        lambda x: tf.roll(x, 1, axis=1),
        lambda x: tf.squeeze(tf.expand_dims(x, 0), 0),
        lambda x: tf.cast(tf.cast(x, tf.float64), tf.float32),
        lambda x: tf.slice(x, [0, 0], [3, 8]),
        lambda x: tf.reshape(x, [3, 8]),
        lambda x: tf.identity(x) * 0.5,
    ):
        columns = keep(columns)
    queue.assign(ops.transpose(columns) / 2.0)


SAMPLES: dict[str, Update] = {
    "append": lambda queue, keys, _: queue.assign(ops.concatenate([queue[2:], keys], axis=0)),
    "prepend": lambda queue, keys, _: queue.assign(
        ops.concatenate([keys, ops.convert_to_tensor(queue)], axis=0)[: SHAPE[0]]
    ),
    "append_in_steps": append_in_steps,
    "write_slice": write_slice,
    "write_rows": write_rows,
    "write_part": lambda queue, keys, _: queue.value[:2].assign(keys),
    "scatter": lambda queue, keys, _: queue.value.scatter_update(tf.IndexedSlices(keys, [0, 1])),
}


def average_of_parts(queue: Any, keys: Any, row: Any) -> None:
    both = ops.concatenate([ops.tile(keys, (2, 1)), ops.ones((4, 3))], axis=0)
    queue.assign(queue * 0.9 + both * 0.1)


def average_of_what_it_normalizes(queue: Any, keys: Any, row: Any) -> None:
    both = ops.concatenate([keys - queue[:2], keys], axis=0)  # a layer that is called twice
    queue.assign(0.9 * queue + 0.1 * ops.mean(both, axis=0))


def prototypes(queue: Any, keys: Any, row: Any) -> None:
    old = ops.take(queue, [1, 4], axis=0)
    rows = ops.convert_to_tensor([[1], [4]])
    queue.assign(ops.scatter_update(queue, rows, 0.9 * old + 0.1 * keys))


def first_batch_or_average(queue: Any, keys: Any, row: Any) -> None:
    mean = ops.zeros(SHAPE) + ops.mean(keys)
    queue.assign(ops.where(row == 0, mean, 0.9 * queue + 0.1 * mean))


STATISTICS: dict[str, Update] = {
    "average": lambda queue, keys, _: queue.assign(0.9 * queue + 0.1 * ops.mean(keys)),
    "average_of_parts": average_of_parts,
    "average_of_what_it_normalizes": average_of_what_it_normalizes,
    "prototypes": prototypes,
    "counts": lambda queue, keys, _: queue.value.scatter_add(tf.IndexedSlices(keys, [0, 1])),
    "first_batch_or_average": first_batch_or_average,
    "last_mean": lambda queue, keys, _: queue.assign(ops.zeros(SHAPE) + ops.mean(keys)),
}


class Memory(keras.layers.Layer):
    """A layer with a float weight and the update of that name."""

    def __init__(self, name: str, **of_weight: Any) -> None:
        super().__init__(name=name)
        self.update, self.of_weight = {**SAMPLES, **STATISTICS}[name], of_weight

    def build(self, shape: tuple[int, ...]) -> None:
        self.queue = self.add_weight(
            shape=SHAPE, initializer="ones", trainable=False, **self.of_weight
        )
        self.row = self.add_weight(initializer="zeros", dtype="int32", trainable=False)

    def call(self, keys: Any) -> Any:
        self.update(self.queue, keys, self.row)
        self.row.assign((self.row + 2) % SHAPE[0])
        return keys


def run(
    *names: str, gather: bool = False, **of_weight: Any
) -> tuple[tf.distribute.Strategy, list[Memory]]:
    strategy = compressed.compressed_strategy()
    with strategy.scope():
        layers = [Memory(name, **of_weight) for name in names]
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


def test_samples_get_one_warning_and_statistics_none(caplog: pytest.LogCaptureFixture) -> None:
    strategy, (appended, *_) = run(*SAMPLES, *STATISTICS)
    messages = warnings(caplog)
    assert len(messages) == len(SAMPLES)
    for name in SAMPLES:
        (message,) = [m for m in messages if m.startswith(f"tf_gc: {name}/")]
        assert "all_gather" in message
    compressed.assert_replicas_agree(strategy, [appended.queue])
    np.testing.assert_array_equal(components(appended.queue)[0][-1], np.full(3, 3.0))  # of 2 and 4


@pytest.mark.parametrize("advice", [{"gather": True}, {"aggregation": "only_first_replica"}])
def test_what_the_warning_advises(advice: dict[str, Any]) -> None:
    strategy, (layer,) = run("append", **advice)
    compressed.assert_replicas_agree(strategy, [layer.queue])
    np.testing.assert_array_equal(components(layer.queue)[0][-1], np.full(3, 2.0))


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
    data = stock.in_batches((x, np.zeros((8, *model.output_shape[1:]))), 4)
    model.fit(data, epochs=2, verbose=0)
    assert warnings(caplog) == []


class Counted(list[tf.Operation]):
    """Operations of a graph, of which it counts how often one is looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[tf.Operation]:
        for operation in super().__iter__():
            self.looked_at += 1
            yield operation


def test_each_operation_is_looked_at_once_however_many_weights_there_are() -> None:
    strategy = compressed.compressed_strategy()
    with strategy.scope():
        layers = [Memory(name) for name in [*SAMPLES, *STATISTICS] * 3]
        for layer in layers:
            layer.build((2, 3))

    @tf.function
    def step() -> None:
        for layer in layers:
            layer(tf.ones([2, 3]))

    graph = step.get_concrete_function().graph
    operations = Counted(graph.get_operations())
    variables = [tf_variable(layer.queue).values[0] for layer in layers]
    found = written_samples(graph, operations, variables)
    kinds = len(SAMPLES) + len(STATISTICS)
    assert found == [i for i in range(3 * kinds) if i % kinds < len(SAMPLES)]
    assert operations.looked_at == len(operations)
