"""Keras' fit, evaluate and predict, their relatives that take one batch, and callbacks.

Training under a strategy is training without one.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.conformance.promise import promise
from tests.keras.stock import (
    BATCH,
    CLASSES,
    FEATURES,
    batches,
    compiled,
    cross_entropy,
    data,
    in_batches,
)

Strategy = tf.distribute.Strategy
# Trains under a strategy and returns a structure of numbers.
Training = Callable[[Strategy], Any]

X, Y = data(48)
ROWS = 42  # leaves 10 for the last batch
WEIGHTS = np.random.default_rng(11).random(48).astype(np.float32)


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> Any:
        rows = slice(i * BATCH, (i + 1) * BATCH)
        return X[rows], Y[rows]


def fit(model: keras.Model, x: Any = X, y: Any = Y, **options: Any) -> Any:
    """Returns all that is known after an epoch, or several."""
    arrays = {"batch_size": BATCH} if isinstance(x, np.ndarray | dict | list) else {}
    settings = {"epochs": 1, "shuffle": False, "verbose": 0, **arrays, **options}
    history = model.fit(x, y, **settings).history
    return {"history": history, "weights": model.get_weights()}


def assert_as_alone(strategy: Strategy, training: Training) -> None:
    """A strategy changes nothing but the order of additions."""
    keras.tree.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        training(strategy),
        training(tf.distribute.get_strategy()),
    )


def two_inputs() -> keras.Model:
    """From a dict of inputs to a dict of outputs."""
    a, b = keras.Input((FEATURES,), name="a"), keras.Input((FEATURES,), name="b")
    hidden = keras.layers.Dense(4)(keras.layers.concatenate([a, b]))
    outputs = {"c": keras.layers.Dense(CLASSES, name="c")(hidden)}
    outputs["d"] = keras.layers.Dense(1, name="d")(hidden)
    return keras.Model({"a": a, "b": b}, outputs)


class OwnStep(keras.Model):
    """A model with a train_step and a metric of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(CLASSES)
        self.dense.build((None, FEATURES))
        self.mean = keras.metrics.Mean(name="mean")

    def call(self, x: Any) -> Any:
        return self.dense(x)

    @property
    def metrics(self) -> list[Any]:
        return [self.mean]

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            logits = self(x, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            loss = tf.reduce_sum(losses) / BATCH
        variables = self.trainable_variables
        gradients = tape.gradient(loss, [v.value for v in variables])
        self.optimizer.apply(gradients, variables)
        self.mean.update_state(losses)
        return {"mean": self.mean.result()}


class Largest(keras.metrics.Metric):
    """A metric that is not a mean: the count of large logits."""

    def __init__(self, name: str = "largest") -> None:
        super().__init__(name=name)
        self.count = self.add_weight(initializer="zeros", name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        large = keras.ops.cast(y_pred > 0.1, "float32")
        self.count.assign_add(keras.ops.sum(large))

    def result(self) -> Any:
        return 1.0 * self.count  # Keras 3.10 hands on a variable as it is


def fit_of_dicts(strategy: Strategy) -> Any:
    model = compiled(
        strategy,
        two_inputs,
        loss={"c": cross_entropy(), "d": "mse"},
        loss_weights={"c": 1.0, "d": 0.5},
        metrics={"c": ["accuracy"], "d": ["mae"]},
    )
    inputs, targets = {"a": X, "b": -X}, {"c": Y, "d": X[:, 0]}
    trained = fit(model, in_batches((inputs, targets)), None, validation_data=(inputs, targets))
    return {**trained, "predicted": model.predict(inputs, batch_size=BATCH, verbose=0)}


def single_batches(strategy: Strategy) -> Any:
    model = compiled(strategy)
    x, y, weights = X[:BATCH], Y[:BATCH], WEIGHTS[:BATCH]
    return {
        "train": model.train_on_batch(x, y),
        "weighted": model.train_on_batch(x, y, sample_weight=weights, return_dict=True),
        "class": model.train_on_batch(x, y, class_weight={0: 1.0, 1: 2.0, 2: 0.5}),
        "test": model.test_on_batch(x, y, return_dict=True),
        "weights": model.get_weights(),
    }


def evaluations_and_predictions(strategy: Strategy) -> Any:
    with strategy.scope():
        own = Largest()
    model = compiled(strategy, metrics=[own], weighted_metrics=["accuracy"])
    x, y, options = X[:ROWS], Y[:ROWS], {"batch_size": BATCH, "verbose": 0}
    return {
        "arrays": model.evaluate(x, y, **options),
        "dataset": model.evaluate(batches(ROWS), verbose=0, return_dict=True),
        "weighted": model.evaluate(x, y, sample_weight=WEIGHTS[:ROWS], **options),
        "steps": model.evaluate(batches(48).repeat(), steps=2, verbose=0),
        "predicted": model.predict(x, **options),
        "small": model.predict(X[:1], verbose=0),
        "of dataset": model.predict(batches(ROWS), verbose=0),
        "call": np.asarray(model(X[:2])),
    }


def in_loops(strategy: Strategy) -> Any:
    """Several steps in an execution; some replicas have no row of the last batch, or a part."""
    model = compiled(strategy, steps_per_execution=2)
    trained = fit(model, X[:44], Y[:44], validation_data=(X[:34], Y[:34]))
    predicted = [model.predict(X[:n], batch_size=BATCH, verbose=0) for n in (ROWS, 33)]
    return {**trained, "predicted": predicted}


def fits_from(model: keras.Model, sources: dict[str, dict[str, Any]]) -> Any:
    """Trains one model, from the same start, with each of several sources of data."""
    start, results = model.get_weights(), {}
    for name, source in sources.items():
        model.set_weights(start)
        results[name] = fit(model, **source)
    return results


def fits_of_sources(strategy: Strategy) -> Any:
    sources: dict[str, dict[str, Any]] = {
        "validation data": {"validation_data": (X[:ROWS], Y[:ROWS])},
        "validation split": {"validation_split": 1 / 3},
        "repeated dataset": {
            "x": batches(48).repeat(),
            "y": None,
            "steps_per_epoch": 2,
            "epochs": 2,
        },
        "PyDataset": {"x": Batches(), "y": None},
    }
    return fits_from(compiled(strategy), sources)


def weighted_fits(strategy: Strategy) -> Any:
    sources: dict[str, dict[str, Any]] = {
        "classes": {"class_weight": {0: 1.0, 1: 2.0, 2: 0.5}},
        "samples": {"sample_weight": WEIGHTS},
    }
    return fits_from(compiled(strategy, weighted_metrics=["accuracy"]), sources)


TRAININGS: dict[str, Training] = {
    "sources": fits_of_sources,
    "weighted": weighted_fits,
    "run eagerly": lambda strategy: fit(compiled(strategy, run_eagerly=True)),
    "dicts": fit_of_dicts,
    "own step": lambda strategy: fit(compiled(strategy, OwnStep)),
    "evaluate and predict": evaluations_and_predictions,
    "one batch": single_batches,
    "in loops": in_loops,
}


# Under the stock strategy of several workers Keras 3 fails in the first step (keras#20585; dicts:
# keras#20329).
@promise(each=TRAININGS, broken_by_stock="workers")
def training_is_as_without_a_strategy(strategy: Strategy, name: str) -> None:
    assert_as_alone(strategy, TRAININGS[name])


@promise(broken_by_stock="workers")
def predict_on_batch_gives_what_each_replica_predicts(strategy: Strategy) -> None:
    """Each replica is given all of the batch."""
    model = compiled(strategy)
    predicted = np.asarray(model.predict_on_batch(X[:4]))
    expected = np.asarray(model(X[:4]))
    assert len(predicted) % 4 == 0
    for part in np.split(predicted, len(predicted) // 4):
        np.testing.assert_allclose(part, expected, rtol=1e-5, atol=1e-6)


class Events(keras.callbacks.Callback):
    """Notes which method is called, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        attribute = super().__getattribute__(name)
        if name.startswith("on_"):
            return lambda *args, **_: self.seen.append(
                f"{name} {[a for a in args if isinstance(a, int)]}"
            )
        return attribute


def events(strategy: Strategy) -> list[str]:
    own, epochs, model = Events(), [], compiled(strategy)
    validation = (X[:BATCH], Y[:BATCH])
    counted = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: epochs.append(epoch))
    fit(model, epochs=2, validation_data=validation, callbacks=[own, counted])
    model.evaluate(*validation, batch_size=BATCH, verbose=0, callbacks=[own])
    model.predict(X, batch_size=BATCH, verbose=0, callbacks=[own])
    assert epochs == [0, 1]
    return own.seen


@promise(broken_by_stock="workers")
def callbacks_are_called_in_the_same_order(strategy: Strategy) -> None:
    assert events(strategy) == events(tf.distribute.get_strategy())
