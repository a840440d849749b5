"""Variables with a copy on each replica: made, read, assigned to, reduced, saved and restored."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.conformance.promise import (
    MODES,
    assert_on_all,
    local,
    number,
    promise,
    replica,
    staged,
    task,
)

Strategy = tf.distribute.Strategy
Aggregation = tf.VariableAggregation
ON_READ = tf.VariableSynchronization.ON_READ

# How the replicas' numbers (1, 2, ...) are aggregated.
AGGREGATED: dict[Any, Callable[[np.ndarray], Any]] = {
    Aggregation.SUM: np.sum,
    Aggregation.MEAN: np.mean,
}
ASSIGNMENTS = {"assign": 0.0, "assign_add": 10.0}  # to 10


def variable(strategy: Strategy, value: Any, **options: Any) -> tf.Variable:
    with strategy.scope():
        return tf.Variable(value, **options)


def numbers_of_all(strategy: Strategy) -> np.ndarray:
    return np.arange(1, strategy.num_replicas_in_sync + 1, dtype=np.float32)


@promise()
def copies_start_with_the_same_random_values(strategy: Strategy) -> None:
    made = variable(strategy, lambda: tf.random.normal([3]))
    values = strategy.run(lambda: made.read_value()[None])
    everyone = strategy.gather(values, axis=0).numpy()
    assert len(everyone) == strategy.num_replicas_in_sync
    np.testing.assert_array_equal(everyone, np.broadcast_to(everyone[0], everyone.shape))
    assert np.ptp(everyone[0]) > 0


@promise(each=itertools.product(ASSIGNMENTS, MODES))
def an_assignment_from_outside_reaches_all_copies(
    strategy: Strategy, method: str, mode: str
) -> None:
    made = variable(strategy, [10.0, 10.0])

    def assign() -> None:
        getattr(made, method)([1.0, 2.0])

    with strategy.scope():
        staged(mode, assign)()
    assert_on_all(strategy, made, ASSIGNMENTS[method] + np.array([1, 2]))


@promise(
    each=itertools.product(ASSIGNMENTS, AGGREGATED, MODES),
    on_workers=itertools.product(ASSIGNMENTS, AGGREGATED, MODES[1:]),
)
def replicas_assign_what_they_have_together(
    strategy: Strategy, method: str, aggregation: Any, mode: str
) -> None:
    made = variable(strategy, 10.0, aggregation=aggregation)

    def step() -> Any:
        getattr(made, method)(number())
        return made.read_value()

    seen = staged(mode, lambda: strategy.run(step))()
    total = ASSIGNMENTS[method] + AGGREGATED[aggregation](numbers_of_all(strategy))
    assert_on_all(strategy, made, total)
    assert_on_all(strategy, seen, total)


@promise(
    each=itertools.product([*AGGREGATED, Aggregation.NONE], MODES),
    on_workers=itertools.product([*AGGREGATED, Aggregation.NONE], MODES[1:]),
)
def on_read_variables_are_each_replicas_own(
    strategy: Strategy, aggregation: Any, mode: str
) -> None:
    made = variable(strategy, 0.0, synchronization=ON_READ, aggregation=aggregation)

    def step() -> Any:
        made.assign(number())
        made.assign_add(100.0)
        return made.read_value() - number()

    assert_on_all(strategy, staged(mode, lambda: strategy.run(step))(), 100)
    own = [float(copy) for copy in strategy.experimental_local_results(made)]
    assert len(set(own)) == len(strategy.extended.worker_devices)
    if aggregation in AGGREGATED:
        together = AGGREGATED[aggregation](100 + numbers_of_all(strategy))
        with strategy.scope():
            assert staged(mode, lambda: made.read_value())() == together
        assert made.numpy() == together  # outside of the scope as well


@promise()
def variables_may_be_made_in_the_first_call(strategy: Strategy) -> None:
    made: list[tf.Variable] = []

    @tf.function
    def steps() -> Any:
        def step() -> Any:
            if not made:
                made.append(tf.Variable(5.0, aggregation=Aggregation.SUM))
            return made[0].assign_add(number())

        return strategy.run(step)

    for calls in (1, 2):
        total = numbers_of_all(strategy).sum() * calls
        assert local(strategy, steps())[0] == 5 + total
    assert_on_all(strategy, made[0], 5 + total)


class Module(tf.Module):
    """A kernel, and a count that each replica has of its own."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.kernel = tf.Variable(tf.fill([2, 3], value))
        self.count = tf.Variable(
            0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )


def module(strategy: Strategy, value: float) -> Module:
    with strategy.scope():
        return Module(value)


@promise()
def a_checkpoint_brings_variables_back(strategy: Strategy, folder: Path) -> None:
    """Also those that are made after it is asked to restore."""
    saved, restored = module(strategy, 3.0), module(strategy, 0.0)
    strategy.run(lambda: saved.count.assign_add(1.0 + tf.cast(replica(), tf.float32)))
    total = sum(range(1, strategy.num_replicas_in_sync + 1))
    path = tf.train.Checkpoint(module=saved).save(folder / f"worker{task(strategy)}")
    tf.train.Checkpoint(module=restored).restore(path).assert_consumed()
    assert_on_all(strategy, restored.kernel, np.full([2, 3], 3))
    later = tf.Module()
    status = tf.train.Checkpoint(module=later).restore(path)
    with strategy.scope():
        later.kernel = tf.Variable(tf.zeros([2, 3]))
        later.count = Module(0.0).count
        status.assert_existing_objects_matched()
        assert restored.count.read_value() == total
        assert later.count.read_value() == total
    assert_on_all(strategy, later.kernel, np.full([2, 3], 3))


# tests/multiworker/test_files.py has workers write.
@promise(on_workers=())
def keras_files_bring_model_and_optimizer_back(strategy: Strategy, folder: Path) -> None:
    """In the scope of the strategy, and without it."""
    with strategy.scope():
        layers = [keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)]
        saved = keras.Sequential(layers)
        saved.compile(keras.optimizers.Adam(0.1), "mse")
    saved.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=8, verbose=0)
    path = str(folder / "model.keras")
    saved.save(path)
    with strategy.scope():
        inside = keras.saving.load_model(path)
    outside = keras.saving.load_model(path)
    for loaded in (inside, outside):
        assert loaded.optimizer.iterations == 1
        variables = [*loaded.weights, *loaded.optimizer.variables]
        expected = [*saved.weights, *saved.optimizer.variables]
        for variable, of_saved in zip(variables, expected, strict=True):
            np.testing.assert_array_equal(variable, of_saved)
    x = tf.ones([2, 4])
    values = strategy.run(lambda: inside(x))
    for value in local(strategy, values):
        np.testing.assert_allclose(value, outside(x), rtol=1e-6)
