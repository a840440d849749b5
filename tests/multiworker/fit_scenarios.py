"""Training in one process or in several workers, with results that can be compared."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_gc
from tests.keras.stock import BATCH, CLASSES, FEATURES, batches, compiled, data, mlp
from tests.multiworker.cluster import worker_index

Results = dict[str, Any]

X, Y = data(96)
# The last batch has 12: rows that do not divide among workers weigh more in the smaller parts, as
# under every strategy of TensorFlow, and training differs.
ROWS = 92


def is_wide(gradient: tf_gc.params.Gradient) -> bool:
    return gradient.shape == (FEATURES, 16)


def strategy_named(name: str) -> tf.distribute.Strategy:
    if name == "single":
        return tf.distribute.get_strategy()
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


def fits(name: str, ways: Sequence[str]) -> Results:
    """Trains, evaluates and predicts in the named ways, which must not depend on the workers."""
    strategy = strategy_named(name)
    arrays = {"x": X[:ROWS], "y": Y[:ROWS], "batch_size": BATCH, "shuffle": False}
    plain = compiled(strategy)
    start = plain.get_weights()

    def anew() -> keras.Model:
        """The plain model as it was made; another one would be traced again."""
        plain.set_weights(start)
        return plain

    def fit(model: keras.Model, epochs: int = 1, **data: Any) -> Results:
        trained = model.fit(epochs=epochs, verbose=0, **data)
        steps = trained.params["steps"]
        return {"history": trained.history, "weights": model.get_weights(), "steps": steps}

    def fit_with(optimizer: dict[str, Any], **options: Any) -> Results:
        sgd = lambda: keras.optimizers.SGD(0.1, **optimizer)  # noqa: E731
        return fit(compiled(strategy, mlp, sgd, **options), **arrays)

    cases: dict[str, Callable[[], Any]] = {
        "arrays": lambda: fit(anew(), epochs=2, **arrays),
        "class_weight": lambda: fit(anew(), class_weight={0: 1.0, 1: 2.0, 2: 0.5}, **arrays),
        "dataset": lambda: fit(anew(), x=batches(ROWS)),
        "steps_per_epoch": lambda: fit(
            anew(), epochs=2, x=batches(ROWS).repeat(), steps_per_epoch=4
        ),
        "steps_per_execution": lambda: fit(
            compiled(strategy, steps_per_execution=2), validation_data=(X[:50], Y[:50]), **arrays
        ),
        "both": lambda: fit_with({"gradient_accumulation_steps": 2}, steps_per_execution=3),
        "clipped": lambda: fit_with({"global_clipnorm": 0.1}),
        # The last batch of these has 10 rows or one, so that some replicas have less or none.
        "evaluate": lambda: anew().evaluate(X[:90], Y[:90], batch_size=BATCH, verbose=0),
        "predict": lambda: anew().predict(X[:90], batch_size=BATCH, verbose=0),
        "predict_81": lambda: anew().predict(X[:81], batch_size=BATCH, verbose=0),
        "predict_dataset": lambda: anew().predict(batches(81), verbose=0),
    }
    return {case: run() for case, run in cases.items() if case in ways}


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
    dataset = tf.data.Dataset.from_tensor_slices((x, np.ones((6, 4, width), np.float32)))
    dataset = without_sharding(dataset.unbatch().batch(4 * strategy.num_replicas_in_sync))
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
