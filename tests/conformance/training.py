"""Keras' fit, evaluate and predict, and their relatives that take one batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.conformance.as_alone import (
    BATCH,
    CLASSES,
    FEATURES,
    WEIGHTS,
    Batches,
    Strategy,
    Training,
    X,
    Y,
    assert_as_alone,
    batches,
    compiled,
    fit,
)
from tests.conformance.models import Largest, OwnStep, WithLoss, two_inputs
from tests.conformance.promise import promise

ROWS = 42  # leaves 10 for the last batch


def fit_of_dicts(strategy: Strategy, folder: Path) -> Any:
    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = compiled(
        strategy,
        two_inputs,
        loss={"c": crossentropy, "d": "mse"},
        loss_weights={"c": 1.0, "d": 0.5},
        metrics={"c": ["accuracy"], "d": ["mae"]},
    )
    inputs, targets = {"a": X, "b": -X}, {"c": Y, "d": X[:, 0]}
    trained = fit(model, inputs, targets, validation_data=(inputs, targets))
    return {**trained, "predicted": model.predict(inputs, batch_size=BATCH, verbose=0)}


def fit_without_targets(strategy: Strategy, folder: Path) -> Any:
    def build() -> keras.Model:
        return keras.Sequential([keras.Input((FEATURES,)), WithLoss()])

    return fit(compiled(strategy, build, loss=None, metrics=None), y=None)


def fit_with_own_step(strategy: Strategy, folder: Path) -> Any:
    return fit(compiled(strategy, OwnStep))


def fit_with_own_metric(strategy: Strategy, folder: Path) -> Any:
    with strategy.scope():
        metrics = [Largest(), keras.metrics.SparseTopKCategoricalAccuracy(2)]
    return fit(compiled(strategy, metrics=metrics), epochs=2)


def single_batches(strategy: Strategy, folder: Path) -> Any:
    model = compiled(strategy)
    x, y, weights = X[:BATCH], Y[:BATCH], WEIGHTS[:BATCH]
    return {
        "train": model.train_on_batch(x, y),
        "weighted": model.train_on_batch(x, y, sample_weight=weights, return_dict=True),
        "class": model.train_on_batch(x, y, class_weight={0: 1.0, 1: 2.0, 2: 0.5}),
        "test": model.test_on_batch(x, y, return_dict=True),
        "weights": model.get_weights(),
    }


def evaluations(strategy: Strategy, folder: Path) -> Any:
    model = compiled(strategy, weighted_metrics=["accuracy"])
    return {
        "arrays": model.evaluate(X[:ROWS], Y[:ROWS], batch_size=BATCH, verbose=0),
        "dataset": model.evaluate(batches(ROWS), verbose=0, return_dict=True),
        "weighted": model.evaluate(
            X[:ROWS], Y[:ROWS], batch_size=BATCH, sample_weight=WEIGHTS[:ROWS], verbose=0
        ),
        "steps": model.evaluate(batches().repeat(), steps=2, verbose=0),
    }


def predictions(strategy: Strategy, folder: Path) -> Any:
    model = compiled(strategy)
    return {
        "arrays": model.predict(X[:ROWS], batch_size=BATCH, verbose=0),
        "small": model.predict(X[:1], verbose=0),
        "dataset": model.predict(batches(ROWS), verbose=0),
        "call": np.asarray(model(X[:2])),
    }


def fits_from(model: keras.Model, sources: dict[str, dict[str, Any]]) -> Any:
    """Trains one model, from the same start, with each of several sources of data."""
    start, results = model.get_weights(), {}
    for name, source in sources.items():
        model.set_weights(start)
        results[name] = fit(model, **source)
    return results


def fits_of_sources(strategy: Strategy, folder: Path) -> Any:
    sources: dict[str, dict[str, Any]] = {
        "arrays": {"epochs": 2},
        "validation data": {"validation_data": (X[:ROWS], Y[:ROWS])},
        "validation split": {"validation_split": 1 / 3},
        "dataset": {"x": batches(), "y": None},
        "repeated dataset": {"x": batches().repeat(), "y": None, "steps_per_epoch": 2, "epochs": 2},
        "PyDataset": {"x": Batches(), "y": None},
    }
    return fits_from(compiled(strategy), sources)


def weighted_fits(strategy: Strategy, folder: Path) -> Any:
    sources: dict[str, dict[str, Any]] = {
        "classes": {"class_weight": {0: 1.0, 1: 2.0, 2: 0.5}},
        "samples": {"sample_weight": WEIGHTS},
    }
    return fits_from(compiled(strategy, weighted_metrics=["accuracy"]), sources)


TRAININGS: dict[str, Training] = {
    "sources": fits_of_sources,
    "weighted": weighted_fits,
    "run eagerly": lambda s, _: fit(compiled(s, run_eagerly=True)),
    "dicts": fit_of_dicts,
    "no targets": fit_without_targets,
    "own step": fit_with_own_step,
    "own metric": fit_with_own_metric,
    "evaluate": evaluations,
    "predict": predictions,
    "one batch": single_batches,
}


# Under the stock strategy of several workers Keras 3 fails in the first step.
@promise(each=TRAININGS, broken_by_stock="workers")
def training_is_as_without_a_strategy(strategy: Strategy, name: str, folder: Path) -> None:
    assert_as_alone(strategy, TRAININGS[name], folder)


def fit_with_several_steps(strategy: Strategy, folder: Path) -> Any:
    model = compiled(strategy, steps_per_execution=2)
    return fit(model, epochs=2, validation_data=(X[:ROWS], Y[:ROWS]))


@promise(broken_by_stock="both")
def steps_run_several_at_once(strategy: Strategy, folder: Path) -> None:
    assert_as_alone(strategy, fit_with_several_steps, folder)


@promise(broken_by_stock="workers")
def predict_on_batch_gives_what_each_replica_predicts(strategy: Strategy) -> None:
    """Each replica is given all of the batch."""
    model = compiled(strategy)
    predicted = np.asarray(model.predict_on_batch(X[:4]))
    expected = np.asarray(model(X[:4]))
    assert len(predicted) % 4 == 0
    for part in np.split(predicted, len(predicted) // 4):
        np.testing.assert_allclose(part, expected, rtol=1e-5, atol=1e-6)


# Under the stock strategies the copies of the statistics drift apart.
@promise(broken_by_stock="both")
def all_variables_are_the_same_on_all_replicas(strategy: Strategy) -> None:
    """The statistics of normalizations among them."""

    def build() -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((FEATURES,)),
                keras.layers.Dense(4),
                keras.layers.BatchNormalization(momentum=0.5),
                keras.layers.Dropout(0.5),
                keras.layers.Dense(CLASSES),
            ]
        )

    model = compiled(strategy, build, lambda: keras.optimizers.Adam(0.1))
    fit(model)
    variables = [*model.trainable_variables, *model.optimizer.variables]
    variables += [v for v in model.non_trainable_variables if "moving" in v.name]

    def copy() -> tf.Tensor:
        """All numbers of a replica, as a row."""
        numbers = [tf.reshape(tf.cast(v.value, tf.float64), [-1]) for v in variables]
        return tf.concat(numbers, axis=0)[None]

    everyone = strategy.gather(strategy.run(copy), axis=0).numpy()
    assert everyone.shape[0] == strategy.num_replicas_in_sync
    assert everyone.shape[1] == sum(np.prod(v.shape, dtype=int) for v in variables)
    np.testing.assert_array_equal(everyone, np.broadcast_to(everyone[0], everyone.shape))
