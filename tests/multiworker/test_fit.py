"""Keras' fit, evaluate and predict, and custom loops, over real worker processes."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.conformance.promise import kept_by_workers
from tests.conformance.training import assert_as_alone, fit
from tests.keras.stock import (
    BATCH,
    CLASSES,
    FEATURES,
    batches,
    compiled,
    data,
    in_batches,
    normalized_mlp,
)
from tests.multiworker import cluster
from tests.multiworker.cluster import worker_index

pytestmark = pytest.mark.multiworker

Results = dict[str, Any]

OURS = tf_gc.CompressedMultiWorkerMirroredStrategy
TWO_BIT = {"type": "2bit", "warm_up": False, "bypass_size": 0, "plan": "scatter_gather"}

X, Y = data(96)
ROWS = 92  # the last batch has 12


def is_wide(gradient: tf_gc.params.Gradient) -> bool:
    return gradient.shape == (FEATURES, 16)


def strategy_named(name: str) -> tf.distribute.Strategy:
    if name == "stock":
        return tf.distribute.MultiWorkerMirroredStrategy()
    codecs = {
        "none": tf_gc.NoCompression(),
        "auto": tf_gc.TwoBit(warm_up=False, bypass_size=20),
        # One kernel is compressed in the warm-up of the other.
        "by variable": tf_gc.ByVariable(
            {"bias": tf_gc.NoCompression(), is_wide: tf_gc.TwoBit(0.001)},
            default=tf_gc.Quantized(bypass_size=20),
        ),
    }
    return tf_gc.CompressedMultiWorkerMirroredStrategy(
        compression_params=codecs[name], clip_after_sum=name == "none"
    )


def without_sharding(dataset: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


def clips_as_one_process() -> None:
    def clipped(strategy: tf.distribute.Strategy) -> Any:
        options = {"global_clipnorm": 0.1, "gradient_accumulation_steps": 2}
        sgd = lambda: keras.optimizers.SGD(0.1, **options)  # noqa: E731
        return fit(compiled(strategy, optimizer=sgd, steps_per_execution=3))

    assert_as_alone(strategy_named("none"), clipped)


def compressed() -> Results:
    model = compiled(strategy_named("by variable"))
    x, y = X[:ROWS], Y[:ROWS]
    history = model.fit(x, y, BATCH, epochs=2, shuffle=False, verbose=0).history
    weights = model.get_weights()
    alone = compiled(tf.distribute.get_strategy())
    alone.set_weights(weights)
    predicted = model.predict(x, BATCH, verbose=0)
    np.testing.assert_allclose(predicted, alone(x), rtol=1e-4, atol=1e-5)
    left = model.distribute_strategy.compression_state.variables
    return {
        "history": history,
        "weights": weights,
        "left": any(np.any(each.numpy()) for each in left),
    }


def sizes_that_differ() -> Results:
    strategy = strategy_named("auto")
    mine = 45 if worker_index() else 90
    results = {}
    for case, dataset in {
        "known": batches(mine),
        "unknown": batches(mine).filter(lambda x, y: True),
    }.items():
        model = compiled(strategy)
        history = model.fit(without_sharding(dataset), epochs=2, verbose=0).history
        results[case] = {"history": history, "weights": model.get_weights()}
    return results


def custom_loop(name: str) -> list[np.ndarray]:
    strategy = strategy_named(name)
    with strategy.scope():
        kernel = tf.Variable(tf.random.stateless_normal((FEATURES, CLASSES), seed=[1, 2]))
        bias = tf.Variable(tf.zeros(CLASSES))
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build([kernel, bias])
    iterator = iter(strategy.experimental_distribute_dataset(batches(80).repeat()))

    def replica_step(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ kernel + bias)
            loss = tf.reduce_sum(losses) / BATCH
        optimizer.apply(tape.gradient(loss, [kernel, bias]), [kernel, bias])

    @tf.function
    def step(iterator: Any) -> None:
        strategy.run(replica_step, args=next(iterator))

    for _ in range(7):
        step(iterator)
    return [kernel.numpy(), bias.numpy()]


def _fit_with_one_bad_step(
    strategy: tf.distribute.Strategy, model: keras.Model, bad: float, width: int, *callbacks: Any
) -> tuple[list[float], list[np.ndarray]]:
    """Returns the loss scale, if there is one, and the first kernel after each batch."""
    scales, kernels = [], []

    def note(batch: int, logs: Any) -> None:
        scale = getattr(model.optimizer, "dynamic_scale", 0.0)
        scales.append(float(tf.convert_to_tensor(scale)))
        kernels.append(model.layers[0].get_weights()[0])

    x = np.random.default_rng(worker_index()).uniform(0, 1, (6, 4, 32)).astype(np.float32)
    if worker_index() == BAD_WORKER:
        x[BAD_STEP] = bad
    y = np.ones((24, width), np.float32)
    rows = 4 * strategy.num_replicas_in_sync
    dataset = without_sharding(in_batches((x.reshape(24, 32), y), rows))
    notes = keras.callbacks.LambdaCallback(on_train_batch_end=note)
    model.fit(dataset.repeat(), steps_per_epoch=6, verbose=0, callbacks=[*callbacks, notes])
    return scales, kernels


BAD_WORKER, BAD_STEP = 1, 3


def terminate_on_nan(params: Any) -> tuple[list[np.ndarray], bool]:
    """Trains until a step is infinite; returns the kernels, and whether residuals are finite."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
    with strategy.scope():
        model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(16)])
        model.compile("sgd", "mse")
    stops = keras.callbacks.TerminateOnNaN()
    _, kernels = _fit_with_one_bad_step(strategy, model, np.inf, 16, stops)
    left = [residual.numpy() for residual in strategy.compression_state.variables]
    return kernels, all(np.isfinite(residual).all() for residual in left)


def overflow() -> tuple[list[float], list[np.ndarray], int]:
    """Returns loss scale and kernel after each step, and how many steps the optimizer took."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [keras.layers.Dense(64, dtype="mixed_float16") for _ in range(2)]
        layers.append(keras.layers.Activation("linear", dtype="float32"))
        model = keras.Sequential([keras.Input((32,)), *layers])
        sgd = keras.optimizers.SGD(0.01)
        optimizer = keras.optimizers.LossScaleOptimizer(sgd, initial_scale=1024.0)
        model.compile(optimizer, "mse")
    scales, kernels = _fit_with_one_bad_step(strategy, model, 6e4, 64)
    return scales, kernels, int(tf.convert_to_tensor(optimizer.iterations))


def compiled_by_xla() -> list[Results]:
    """Returns what training leaves with XLA, and without."""
    results = []
    for xla in (True, False):
        strategy = OURS(compression_params=TWO_BIT)
        model = compiled(strategy, lambda: normalized_mlp(False), jit_compile=xla)
        result = fit(model, X[:ROWS], Y[:ROWS])
        left = [each.numpy() for each in strategy.compression_state.variables]
        evaluated = model.evaluate(X[:ROWS], Y[:ROWS], BATCH, verbose=0)
        predicted = model.predict(X[:ROWS], BATCH, verbose=0)
        results.append({**result, "left": left, "evaluated": evaluated, "predicted": predicted})
    return results


def assert_trees_close(mine: Any, theirs: Any, **tolerance: float) -> None:
    keras.tree.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, **tolerance), mine, theirs
    )


@pytest.fixture(scope="module")
def two() -> list[dict[str, Any]]:
    calls = {
        "promises": (kept_by_workers, OURS, "[in loops]"),
        "clipped": (clips_as_one_process,),
        "sizes": (sizes_that_differ,),
        "overflow": (overflow,),
        "xla": (compiled_by_xla,),
        "nan, none": (terminate_on_nan, {"type": "none"}),
        "nan, automatic": (terminate_on_nan, TWO_BIT),
    }
    return cluster.values(cluster.each, calls)


@pytest.fixture(scope="module")
def optimized() -> list[dict[str, Any]]:
    """With graphs that TensorFlow optimizes, and with a chief."""
    calls = {"by variable": (compressed,), "loop": (custom_loop, "none")}
    return cluster.values(
        cluster.each, calls, configs=cluster.tf_configs(2, chiefs=1), optimized=True
    )


def test_workers_train_as_one_process_does(two: list[dict[str, Any]]) -> None:
    for result in two:
        assert len(result["promises"]) == 1
        assert result["clipped"] is None


def test_compressed_workers_hold_the_same_weights(optimized: list[dict[str, Any]]) -> None:
    first, second = (result["by variable"] for result in optimized)
    assert_trees_close(first["weights"], second["weights"], rtol=0, atol=0)
    assert_trees_close(first["history"], second["history"], rtol=0, atol=0)
    losses = first["history"]["loss"]
    assert losses[-1] < losses[0]
    assert first["left"]


def test_workers_may_have_datasets_of_different_sizes(two: list[dict[str, Any]]) -> None:
    first, second = (result["sizes"] for result in two)
    assert_trees_close(first, second, rtol=0, atol=0)
    assert_trees_close(first["known"], first["unknown"], rtol=0, atol=0)
    losses = first["known"]["history"]["loss"]
    assert losses[-1] < losses[0]


def test_without_compression_weights_are_the_stock_strategys_bits(
    optimized: list[dict[str, Any]],
) -> None:
    # A job of its own: for the second strategy of a process, TensorFlow starts its collectives
    # anew, and the workers were seen to hang then.
    stock = cluster.values(custom_loop, "stock", optimized=True)
    for of_worker in (*(result["loop"] for result in optimized), *stock):
        assert_trees_close(of_worker, stock[0], rtol=0, atol=0)


def test_xla_compiles_what_each_worker_computes(two: list[dict[str, Any]]) -> None:
    for mine, plain in (result["xla"] for result in two):
        assert_trees_close(mine, plain, rtol=1e-3, atol=1e-5)
        assert_trees_close(mine["weights"], two[0]["xla"][0]["weights"], rtol=0, atol=0)


@pytest.mark.parametrize("codec", ["none", "automatic"])
def test_a_bad_number_on_one_worker_stops_all_after_the_same_step(
    two: list[dict[str, Any]], codec: str
) -> None:
    for kernels, finite in (result[f"nan, {codec}"] for result in two):
        assert len(kernels) == BAD_STEP + 1
        np.testing.assert_array_equal(kernels, two[0][f"nan, {codec}"][0])
        assert finite


def test_all_workers_skip_a_step_that_overflows_on_one(two: list[dict[str, Any]]) -> None:
    for scales, kernels, taken in (result["overflow"] for result in two):
        steps = len(kernels)
        assert scales == [1024.0] * BAD_STEP + [512.0] * (steps - BAD_STEP)
        assert taken == steps - 1
        np.testing.assert_array_equal(kernels[BAD_STEP], kernels[BAD_STEP - 1])
        assert (kernels[BAD_STEP + 1] != kernels[BAD_STEP]).any()
        np.testing.assert_array_equal(kernels, two[0]["overflow"][1])
        assert np.isfinite(kernels).all()
