"""Graphs that are built first and run in a session later, as in TensorFlow 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.conformance.promise import promise, replica

Strategy = tf.distribute.Strategy


def run(strategy: Strategy, build: Any) -> Any:
    """Returns the values of what `build` makes in a graph, in the scope of the strategy."""
    with tf.Graph().as_default(), strategy.scope():
        result = build()
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            return session.run(result)


@promise(one_host=True, each=("SUM", "MEAN"))
def a_session_reduces_and_gathers(strategy: Strategy, op: str) -> None:
    def build() -> Any:
        values = strategy.run(lambda: tf.fill([2], tf.cast(replica() + 1, tf.float32)))
        return (
            strategy.reduce(op, values, axis=None),
            strategy.reduce(op, values, axis=0),
            strategy.gather(values, axis=0),
        )

    numbers = np.arange(1, strategy.num_replicas_in_sync + 1)
    together = {"SUM": np.sum, "MEAN": np.mean}[op]
    over_replicas, over_all, gathered = run(strategy, build)
    np.testing.assert_array_equal(over_replicas, [together(numbers)] * 2)
    np.testing.assert_array_equal(over_all, together(np.repeat(numbers, 2)))
    np.testing.assert_array_equal(gathered, np.repeat(numbers, 2))


@promise(one_host=True)
def replicas_reduce_in_a_session(strategy: Strategy) -> None:
    def build() -> Any:
        def step() -> Any:
            context = tf.distribute.get_replica_context()
            mine = tf.cast(replica() + 1, tf.float32)
            return context.all_reduce("SUM", mine), context.all_gather(mine[None], axis=0)

        return [strategy.experimental_local_results(value) for value in strategy.run(step)]

    numbers = np.arange(1, strategy.num_replicas_in_sync + 1)
    totals, gathered = run(strategy, build)
    np.testing.assert_array_equal(totals, [numbers.sum()] * len(numbers))
    np.testing.assert_array_equal(gathered, [numbers] * len(numbers))


@promise(one_host=True)
def a_session_updates_variables_on_all_replicas(strategy: Strategy) -> None:
    def build() -> Any:
        variable = tf.compat.v1.get_variable(
            "v", initializer=1.0, aggregation=tf.VariableAggregation.SUM, use_resource=True
        )
        added = strategy.run(lambda: variable.assign_add(tf.cast(replica() + 1, tf.float32)))
        with tf.control_dependencies(list(strategy.experimental_local_results(added))):
            return [copy.read_value() for copy in strategy.experimental_local_results(variable)]

    total = 1 + sum(range(1, strategy.num_replicas_in_sync + 1))
    assert run(strategy, build) == [total] * strategy.num_replicas_in_sync
