"""Weights that layers update by themselves are the same on all replicas."""

import threading
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.bits import assert_same_bits
from tests.cases import cases
from tests.keras import compressed, stock
from tests.keras.compressed import components
from tf_gc.keras.variables import tf_variable

pytestmark = pytest.mark.optimized_graphs


class RunningMean(keras.layers.Layer):
    """A layer of a user's own: a statistic, a counter, a memory of its batches, and nothing."""

    def build(self, shape: tuple[int, ...]) -> None:
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)
        self.calls = self.add_weight(initializer="zeros", dtype="int32", trainable=False)
        self.memory = keras.Variable(np.zeros(shape[-1], np.float32), trainable=False)
        self.nothing = self.add_weight(shape=(0,), trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            batch = keras.ops.mean(x, axis=0)
            self.mean.assign(0.5 * self.mean + 0.5 * batch)
            self.calls.assign_add(1)
            self.memory.assign(batch)
            self.nothing.assign(2 * self.nothing)
        return x - self.mean


def normalized() -> keras.Model:
    return stock.normalized_mlp(False)


def with_statistics_of_each_kind() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((stock.FEATURES,)),
            RunningMean(),
            keras.layers.Dense(16),
            keras.layers.BatchNormalization(momentum=0.5),
            keras.layers.BatchNormalization(momentum=0.5, **stock.RENORM),
            keras.layers.Dense(stock.CLASSES),
        ]
    )


def fit(strategy: tf.distribute.Strategy, build: Any = normalized, **arguments: Any) -> keras.Model:
    return stock.fit(strategy, build, epochs=2, **arguments).model


def assert_one_model(
    strategy: tf.distribute.Strategy, model: keras.Model, weights: Any = None
) -> None:
    """All replicas have the same weights, and predict what the model computes elsewhere."""
    compressed.assert_replicas_agree(strategy, weights or model.weights)
    x, _ = stock.data()
    expected = model(x, training=False).numpy()
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, rtol=1e-5, atol=1e-6)


def test_statistics_are_the_same_on_all_replicas_after_fit() -> None:
    strategy = compressed.compressed_strategy(4)
    model = fit(strategy, with_statistics_of_each_kind)
    layer = model.layers[0]
    assert_one_model(strategy, model, [w for w in model.weights if w is not layer.memory])
    assert components(layer.calls)[0] == 2 * stock.SAMPLES // stock.BATCH
    first, second, *_ = components(layer.memory)  # no weight: left to the replica
    assert not np.allclose(first, second)

    # `evaluate` and `predict` send nothing: their graphs have no collective for it.
    x, _ = stock.data()

    def collectives(training: bool) -> int:
        @tf.function
        def step(batch: tf.Tensor) -> Any:
            return strategy.run(lambda: model(batch, training=training))

        graph = step.get_concrete_function(tf.constant(x)).graph
        return sum("Collective" in operation.type for operation in graph.get_operations())

    assert collectives(training=False) == 0
    assert collectives(training=True) > 0


@pytest.fixture(scope="module")
def drifted() -> keras.Model:
    return stock.fit(stock.stock_strategy(), normalized, epochs=1).model


@cases("arguments", {"steps_per_execution": 3}, {"run_eagerly": True}, {}, ids=str)
def test_averages_are_those_of_the_stock_replicas_however_steps_are_run(
    drifted: keras.Model, arguments: dict[str, Any]
) -> None:
    """With the same gradients, averaging in each step is averaging at the end."""
    strategy = compressed.compressed_strategy(2, {"type": "none"}, True)
    mine = stock.fit(strategy, normalized, epochs=1, **arguments).model
    assert_one_model(strategy, mine)
    # Why all this exists: should Keras mend it, layer_state.py can go.
    mean, *_ = [w for w in drifted.non_trainable_weights if "moving_mean" in w.path]
    assert not np.allclose(*components(mean))
    for averaged, apart in zip(
        mine.non_trainable_weights, drifted.non_trainable_weights, strict=True
    ):
        expected = np.mean(components(apart), axis=0)
        np.testing.assert_allclose(components(averaged)[0], expected, rtol=1e-5)


def test_replicas_keep_their_statistics_if_that_is_asked_for() -> None:
    strategy = compressed.compressed_strategy(2, None, average_layer_state=False)
    model = fit(strategy)
    mean, *_ = [w for w in model.non_trainable_weights if "moving_mean" in w.path]
    first, second = components(mean)
    assert not np.allclose(first, second)


def test_a_loop_of_ones_own_has_one_model_after_every_run() -> None:
    strategy = compressed.compressed_strategy()
    model = stock.compiled(strategy, normalized)
    x = tf.constant(stock.data()[0])
    traced = tf.function(lambda batch: model(batch, training=True))

    def step(call: Any, scale: tf.Tensor) -> None:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        call(x * tf.reduce_sum(scale) + tf.cast(replica, tf.float32))

    def eagerly(call: Any) -> Any:
        return lambda scale: strategy.run(step, (call, scale))

    def forward(batch: tf.Tensor) -> None:
        model(batch, training=True)

    ways = [
        eagerly(forward),
        eagerly(traced),  # a function that was traced before
        tf.function(eagerly(forward)),
        tf.function(eagerly(traced)),  # the second shape traces it again, and not `traced`
    ]
    for run in ways:
        for shape in (), (2,):
            run(tf.ones(shape))
            compressed.assert_replicas_agree(strategy, model.weights)


WRITES: dict[str, Any] = {
    "assign": lambda value, x: value.assign(value + x),
    "assign without reading": lambda value, x: value.assign(value + x, read_value=False),
    "assign_add": lambda value, x: value.assign_add(x),
    "assign_sub": lambda value, x: value.assign_sub(x, read_value=False),
    "slice": lambda value, x: value[1:].assign(x[1:]),
    "scatter_add": lambda value, x: value.scatter_add(tf.IndexedSlices(x[1:], [1, 2])),
    "scatter_update": lambda value, x: value.scatter_update(tf.IndexedSlices(x[1:], [1, 2])),
    "a component": lambda value, x: value._get().assign(x),
}


def operations_of_a_step(layers: int, average_layer_state: bool) -> int:
    strategy = compressed.compressed_strategy(2, compressed.AUTO, average_layer_state)
    with strategy.scope():
        deep = [keras.layers.BatchNormalization() for _ in range(layers)]
        model = keras.Sequential([keras.Input((4,)), *deep])

    def replica_step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(tf.ones([2, 4]), training=True))
        variables = [tf_variable(each) for each in model.trainable_variables]
        gradients = tape.gradient(loss, variables)
        tf_gc.all_reduce_gradients(zip(gradients, variables, strict=True))

    graph = tf.function(strategy.run).get_concrete_function(replica_step).graph
    made = graph.as_graph_def()
    return len(made.node) + sum(len(function.node_def) for function in made.library.function)


def test_a_layer_costs_as_many_operations_however_deep_the_model_is() -> None:
    few, more, most = (operations_of_a_step(layers, True) for layers in (4, 8, 16))
    assert most - more == 2 * (more - few)
    # A replica reads, and writes, two statistics of a layer.
    apart = operations_of_a_step(16, False) - operations_of_a_step(8, False)
    assert most - more - apart <= 8 * 2 * 2 * 3


class Written(keras.layers.Layer):
    """A layer whose weight is written by methods of its `tf.Variable`, and a sibling's is not."""

    def __init__(self, write: Any) -> None:
        super().__init__()
        self.write = write

    def build(self, shape: tuple[int, ...]) -> None:
        self.sum = self.add_weight(shape=(3,), initializer="zeros", trainable=False)

    def call(self, x: Any) -> Any:
        self.write(self.sum.value, x)
        return x


@pytest.mark.parametrize("run", ["eagerly", "traced in a replica", "in a graph"])
def test_methods_of_tensorflow_write_statistics_too(run: str) -> None:
    strategy = compressed.compressed_strategy()
    with strategy.scope():
        layers = [Written(write) for write in WRITES.values()]
        for layer in layers:
            layer.build((3,))
        untouched = Written(None)
        untouched.build((3,))

    def forward(x: tf.Tensor) -> None:
        for layer in layers:
            layer(x)

    call = tf.function(forward) if run == "traced in a replica" else forward

    def replica_step() -> None:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        call(tf.fill([3], tf.cast(replica, tf.float32)))

    step = tf.function(strategy.run) if run == "in a graph" else strategy.run
    for component, value in enumerate((1.0, 2.0)):  # not of a replica: nothing is averaged
        untouched.sum.value.values[component].assign(tf.fill([3], value))
    for _ in range(2):
        step(replica_step)
        compressed.assert_replicas_agree(strategy, [layer.sum for layer in layers])
        assert all(components(layer.sum)[0].any() for layer in layers)
    assert components(untouched.sum)[1][0] == 2


def test_threads_that_run_at_once_average_what_each_of_them_wrote() -> None:
    strategy = compressed.compressed_strategy()
    with strategy.scope():
        layers = [Written(WRITES["assign_add"]) for _ in range(2)]
        for layer in layers:
            layer.build((3,))
    turns = threading.Barrier(2)
    first = set[int]()

    def replica_step(number: int) -> None:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        if number not in first:  # both runs have begun before a layer is called
            first.add(number)
            turns.wait(60)
        layers[number](tf.fill([3], tf.cast(replica, tf.float32)))

    runs = [threading.Thread(target=strategy.run, args=(replica_step, (n,))) for n in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    for layer in layers:
        assert components(layer.sum)[0].tolist() == [0.5] * 3
        compressed.assert_replicas_agree(strategy, [layer.sum])


@pytest.mark.parametrize("steps", [None, 2])
def test_float8_scales_are_those_of_the_whole_batch(steps: int | None) -> None:
    """The largest elements of all replicas; with `"none"` those that the stock strategy has."""

    def fit_with(strategy: tf.distribute.Strategy) -> list[Any]:
        keras.utils.set_random_seed(1)
        with strategy.scope():
            dense = keras.layers.Dense(4, dtype="float8_from_float32")
            model = keras.Sequential([keras.Input((3,)), dense])
            optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=steps)
            model.compile(keras.optimizers.LossScaleOptimizer(optimizer), "mse")
        x = np.arange(1, 25, dtype=np.float32).reshape(8, 3)
        model.fit(x, np.ones((8, 4)), batch_size=4, shuffle=False, epochs=2, verbose=0)
        return [w for w in model.trainable_variables if w.overwrite_with_gradient]

    strategy = compressed.compressed_strategy()
    weights = fit_with(strategy)
    assert len(weights) == 6
    compressed.assert_replicas_agree(strategy, weights)
    (history,) = [w for w in weights if "inputs_amax_history" in w.path]
    of_second = {24.0} if steps else {12.0, 24.0}  # in its batches, or the larger of two
    assert set(components(history)[0].tolist()) == {0.0, *of_second}
    if steps is None:  # Keras accumulates under no stock strategy
        apart = fit_with(compressed.compressed_strategy(2, compressed.NONE))
        for mine, theirs in zip(apart, fit_with(stock.stock_strategy()), strict=True):
            assert_same_bits(components(mine), components(theirs))


def test_statistics_keep_their_dtype_and_leave_out_replicas_that_are_not_finite() -> None:
    strategy = compressed.compressed_strategy()
    with strategy.scope():
        layers = [RunningMean(dtype=dtype) for dtype in ("float16", "float64")]
        for layer in layers:
            layer.build((None, 3))

    @tf.function
    def step(of_second: tf.Tensor) -> None:
        def replica_step() -> None:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            x = tf.where(replica == 1, of_second, 0.0)
            for layer in layers:
                layer(tf.cast(tf.repeat(x[None], 4, axis=0), layer.compute_dtype), training=True)

        strategy.run(replica_step)

    # Of 0 and 0.5, and then of the first replica's alone.
    for of_second, expected in ([1.0] * 3, 0.25), ([np.nan, 1.0, 1.0], 0.125):
        step(tf.constant(of_second))
        for layer, dtype in zip(layers, (np.float16, np.float64), strict=True):
            for component in components(layer.mean):
                assert component.dtype == dtype
                np.testing.assert_array_equal(component, np.full(3, expected))
