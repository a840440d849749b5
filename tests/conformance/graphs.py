"""Graphs that are built first and run in a session later, as in TensorFlow 1."""

from typing import Any

import numpy as np
import tensorflow as tf

from tests.conformance.promise import number, number_of_workers, promise

Strategy = tf.distribute.Strategy
v1 = tf.compat.v1


def run(strategy: Strategy, build: Any) -> Any:
    """Returns the values of what `build` makes in a graph, in the scope of the strategy."""
    config, target = v1.ConfigProto(device_count={"CPU": 8}), ""
    if number_of_workers(strategy) > 1:
        config = strategy.update_config_proto(v1.ConfigProto())
        target = strategy.cluster_resolver.master(rpc_layer="grpc")
    with tf.Graph().as_default(), strategy.scope():
        result = build()
        with v1.Session(target, config=config) as session:
            session.run(v1.global_variables_initializer())
            return session.run(result)


@promise(each=("SUM", "MEAN"))
def a_session_reduces_and_gathers(strategy: Strategy, op: str) -> None:
    def build() -> Any:
        values = strategy.run(lambda: tf.fill([2], number()))

        def again(i: Any, total: Any) -> Any:
            return i + 1, total + strategy.reduce(op, strategy.run(number), axis=None)

        return (
            strategy.reduce(op, values, axis=None),
            strategy.reduce(op, values, axis=0),
            strategy.gather(values, axis=0),
            tf.while_loop(lambda i, _: i < 3, again, [0, 0.0])[1],
        )

    numbers = np.arange(1, strategy.num_replicas_in_sync + 1)
    together = {"SUM": np.sum, "MEAN": np.mean}[op]
    over_replicas, over_all, gathered, in_a_loop = run(strategy, build)
    np.testing.assert_array_equal(over_replicas, [together(numbers)] * 2)
    np.testing.assert_array_equal(over_all, together(np.repeat(numbers, 2)))
    np.testing.assert_array_equal(gathered, np.repeat(numbers, 2))
    assert in_a_loop == 3 * together(numbers)


@promise()
def replicas_reduce_in_a_session(strategy: Strategy) -> None:
    def build() -> Any:
        def step() -> Any:
            context = tf.distribute.get_replica_context()
            return context.all_reduce("SUM", number()), context.all_gather(number()[None], axis=0)

        return [strategy.experimental_local_results(value) for value in strategy.run(step)]

    numbers = np.arange(1, strategy.num_replicas_in_sync + 1)
    totals, gathered = run(strategy, build)
    np.testing.assert_array_equal(totals, [numbers.sum()] * len(totals))
    np.testing.assert_array_equal(gathered, [numbers] * len(totals))


@promise(each=("ON_READ", "ON_WRITE"))
def a_session_updates_and_reads_variables(strategy: Strategy, synchronization: str) -> None:
    def build() -> Any:
        variable = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization[synchronization],
            aggregation=tf.VariableAggregation.SUM,
        )
        added = strategy.run(lambda: variable.assign_add(number()))
        after = [tf.convert_to_tensor(v) for v in strategy.experimental_local_results(added)]
        with tf.control_dependencies(after):
            return variable.read_value()

    assert run(strategy, build) == sum(range(1, strategy.num_replicas_in_sync + 1))


@promise()
def a_session_sums_what_is_not_compressed(strategy: Strategy) -> None:
    def build() -> Any:
        variable = tf.Variable(tf.zeros([3]))

        def step() -> Any:
            merge = tf.distribute.get_replica_context().merge_call
            return merge(
                lambda strategy, value: strategy.extended.batch_reduce_to(
                    tf.distribute.ReduceOp.MEAN, [(value, variable)]
                )[0],
                args=(tf.fill([3], number()),),
            )

        return strategy.experimental_local_results(strategy.run(step))

    mean = (strategy.num_replicas_in_sync + 1) / 2
    np.testing.assert_array_equal(run(strategy, build)[0], [mean] * 3)
