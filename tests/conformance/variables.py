"""Variables with a copy on each replica: how they are made, read, assigned to and reduced."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tests.conformance.promise import MODES, assert_on_all, local, number, promise, staged

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
