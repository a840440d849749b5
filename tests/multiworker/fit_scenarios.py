"""Training in one process or in several workers, with results that can be compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_gc

Results = dict[str, Any]

_random = np.random.default_rng(0)
X = _random.random((96, 8)).astype(np.float32)
Y = _random.integers(3, size=96)
BATCH = 16


def is_wide(gradient: tf_gc.params.Gradient) -> bool:
    return gradient.shape == (8, 16)


def strategy_named(name: str, **arguments: Any) -> tf.distribute.Strategy:
    """The default strategy, the stock one, or ours with a codec and other arguments."""
    if name == "single":
        return tf.distribute.get_strategy()
    if name == "stock":
        return tf.distribute.MultiWorkerMirroredStrategy()
    codecs = {
        "none": tf_gc.NoCompression(),
        "auto": tf_gc.TwoBit(warm_up=False, bypass_size=20),
        "trial": tf_gc.Auto(tf_gc.TwoBit(warm_up=False, bypass_size=20)),
        # One kernel is compressed in the warm-up of the other.
        "by variable": tf_gc.ByVariable(
            {"bias": tf_gc.NoCompression(), is_wide: tf_gc.TwoBit(0.001)},
            default=tf_gc.Quantized(bypass_size=20),
        ),
    }
    return tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=codecs[name], **arguments)


def make_model(strategy: tf.distribute.Strategy, **options: Any) -> keras.Model:
    """A compiled model with the same weights each time."""
    keras.utils.set_random_seed(1)
    optimizer = options.pop("optimizer", {})
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((8,)),
                keras.layers.Dense(16, activation="relu"),
                keras.layers.Dense(3),
            ]
        )
        model.compile(
            optimizer=keras.optimizers.SGD(0.1, **optimizer),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            **options,
        )
    return model


def batches(size: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X[:size], Y[:size])).batch(BATCH)


def fits(name: str, rows: int, only: Sequence[str] = ()) -> Results:
    """Trains, evaluates and predicts in all the ways that must not depend on the workers.

    Args:
      name: of the strategy.
      rows: of the training data; what is left for the last batch has to divide among workers.
      only: which ways, if not all.
    """
    strategy = strategy_named(name)
    arrays = {"x": X[:rows], "y": Y[:rows], "batch_size": BATCH, "shuffle": False}
    validation = {"validation_data": (X[:50], Y[:50])}
    weights = {"class_weight": {0: 1.0, 1: 2.0, 2: 0.5}}

    plain = make_model(strategy)
    start = plain.get_weights()

    def anew() -> keras.Model:
        """The plain model as it was made; another one would be traced again."""
        plain.set_weights(start)
        return plain

    def fit(model: keras.Model, epochs: int = 1, **data: Any) -> Results:
        history = model.fit(epochs=epochs, verbose=0, **data).history
        return {"history": history, "weights": model.get_weights()}

    cases: dict[str, Callable[[], Any]] = {
        "arrays": lambda: fit(anew(), epochs=2, **arrays),
        "validation": lambda: fit(anew(), **arrays, **validation),
        "class_weight": lambda: fit(anew(), **arrays, **weights),
        "dataset": lambda: fit(anew(), x=batches(rows)),
        "steps_per_epoch": lambda: fit(
            anew(), epochs=2, x=batches(rows).repeat(), steps_per_epoch=4
        ),
        "steps_per_execution": lambda: fit(
            make_model(strategy, steps_per_execution=2), **arrays, **validation
        ),
        "gradient_accumulation": lambda: fit(
            make_model(strategy, optimizer={"gradient_accumulation_steps": 2}), **arrays
        ),
        "both": lambda: fit(
            make_model(
                strategy, optimizer={"gradient_accumulation_steps": 2}, steps_per_execution=3
            ),
            **arrays,
        ),
        # The last batch of these has 10 rows or one, so that some replicas have less or none.
        "evaluate": lambda: anew().evaluate(X[:90], Y[:90], batch_size=BATCH, verbose=0),
        "predict": lambda: anew().predict(X[:90], batch_size=BATCH, verbose=0),
        "predict_81": lambda: anew().predict(X[:81], batch_size=BATCH, verbose=0),
        "predict_dataset": lambda: anew().predict(batches(81), verbose=0),
    }
    return {case: run() for case, run in cases.items() if not only or case in only}


def clips(name: str, *after_sum: bool) -> list[Results]:
    """Trains with each kind of clipping: weights, by the kind.

    Args:
      name: of the strategy.
      after_sum: for each of the results that are returned, `clip_after_sum` of the strategy; the
        default strategy, which has none, gives one.
    """
    clipping = ({"clipnorm": 0.05}, {"global_clipnorm": 0.1}, {"clipvalue": 0.005})
    around = ({}, {"gradient_accumulation_steps": 2}, {"gradient_accumulation_steps": 2})
    results = []
    for arguments in [{"clip_after_sum": value} for value in after_sum] or [{}]:
        strategy = strategy_named(name, **arguments)
        weights = {}
        for kind, of_optimizer in zip(clipping, around, strict=True):
            of_compile = {"steps_per_execution": 3} if of_optimizer else {}
            model = make_model(strategy, optimizer={**kind, **of_optimizer}, **of_compile)
            model.fit(X, Y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
            weights[next(iter(kind))] = model.get_weights()
        results.append(weights)
    return results


def sizes_that_differ(*names: str) -> list[Results]:
    """Trains with more data on the first worker than on the others, under each strategy."""
    return [_sizes_that_differ(strategy_named(name)) for name in names]


def _sizes_that_differ(strategy: tf.distribute.Strategy) -> Results:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    mine = 90 if resolver.task_id == 0 else 45
    results = {}
    for case, data in {
        "known": batches(mine),
        "unknown": batches(mine).filter(lambda x, y: True),
    }.items():
        model = make_model(strategy)
        history = model.fit(data.with_options(options), epochs=2, verbose=0).history
        results[case] = {"history": history, "weights": model.get_weights()}
    return results


def custom_loops(name: str) -> Results:
    """Trains by strategy.run, in both ways."""
    strategy = strategy_named(name)
    ways = {"optimizer": False, "by hand": True}
    return {way: loop(strategy, name, by_hand) for way, by_hand in ways.items()}


def custom_loop(name: str) -> list[np.ndarray]:
    return loop(strategy_named(name), name, by_hand=False)


def loop(strategy: tf.distribute.Strategy, name: str, by_hand: bool) -> list[np.ndarray]:
    """Trains by strategy.run and returns the weights.

    Args:
      strategy: under which one.
      name: of the strategy.
      by_hand: whether to apply the gradients without a Keras optimizer.
    """
    keras.utils.set_random_seed(1)
    with strategy.scope():
        kernel = tf.Variable(tf.random.stateless_normal((8, 3), seed=[1, 2]))
        bias = tf.Variable(tf.zeros(3))
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build([kernel, bias])
    data = strategy.experimental_distribute_dataset(batches(80).repeat())

    def replica_step(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            logits = x @ kernel + bias
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            loss = tf.reduce_sum(losses) / BATCH
        pairs = list(zip(tape.gradient(loss, [kernel, bias]), [kernel, bias], strict=True))
        if not by_hand:
            optimizer.apply(*map(list, zip(*pairs, strict=True)))
            return
        if name == "stock":
            context = tf.distribute.get_replica_context()
            sums = context.all_reduce(tf.distribute.ReduceOp.SUM, [g for g, _ in pairs])
        else:
            sums = tf_gc.all_reduce_gradients(pairs)
        for total, (_, variable) in zip(sums, pairs, strict=True):
            variable.assign_sub(0.1 * total)

    @tf.function
    def step(iterator: Any) -> None:
        strategy.run(replica_step, args=next(iterator))

    iterator = iter(data)
    for _ in range(7):
        step(iterator)
    for variable in (kernel, bias):
        for component in variable.values[1:]:
            np.testing.assert_array_equal(component, variable.values[0])
    return [kernel.numpy(), bias.numpy()]
