"""Collectives in loops: every iteration, and every replica, finds its counterparts."""

import itertools
import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.helpers import strategy_of
from tf_gc.network.instance_keys import KeySource, in_iteration

pytestmark = pytest.mark.optimized_graphs

LIMIT = 70_000  # iterations in all, of two nested loops
COLLECTIVES = 4096


def key_in(key: int, *iterations: int) -> int:
    value = tf.constant(key, tf.int32)
    for iteration in iterations:
        value = in_iteration(value, tf.constant(iteration))
    return int(value)


@given(
    st.integers(0, 2**30),
    st.integers(0, COLLECTIVES - 1),
    st.integers(0, 2**18 - 1),
    st.integers(0, 2**18 - 1),
)
def test_collectives_and_iterations_have_keys_of_their_own(
    first: int, offset: int, iteration: int, other: int
) -> None:
    same = offset == 0 and iteration == other
    one, two = key_in(first, iteration), key_in(first + offset, other)
    assert (one == two) == same
    assert min(one, two) >= 2**30  # TensorFlow draws smaller ones
    assert max(one, two) < 2**31


def test_iterations_of_two_nested_loops_have_keys_of_their_own() -> None:
    """For every shape of the nest: as many outer iterations as the inner ones leave room for."""
    factor = (key_in(1, 0) - key_in(0, 0)) % 2**30
    inner_stride = (key_in(0, 1) - key_in(0, 0)) % 2**30
    outer_stride = (key_in(0, 1, 0) - key_in(0, 0, 0)) % 2**30
    assert factor % 2 == 1
    outer = np.arange(1, LIMIT)
    # Outer iterations `outer` apart meet where their inner ones are `apart` apart.
    assert outer_stride % inner_stride == 0
    strides = outer * (outer_stride // inner_stride) % (2**30 // inner_stride)
    apart = np.minimum(strides, 2**30 // inner_stride - strides)
    # `outer` apart needs more outer iterations than that; `apart` needs as many inner ones.
    assert ((outer + 1) * (apart + 1) > LIMIT).all()


@pytest.mark.parametrize("params", [{"type": "none"}, None])
def test_iterations_may_differ_in_shape(params: Any) -> None:
    strategy = strategy_of(params)

    @tf.function
    def gathered_rows() -> tf.Tensor:
        rows = tf.constant(0)
        for i in tf.range(3):
            for j in tf.range(4):
                value = strategy.run(lambda i=i, j=j: tf.ones([1 + i * j, 2]))
                rows += tf.shape(strategy.gather(value, axis=0))[0]
        return rows

    assert gathered_rows() == 2 * sum(1 + i * j for i in range(3) for j in range(4))


def test_a_condition_of_a_loop_may_have_collectives() -> None:
    strategy = strategy_of({"type": "none"})
    total = tf.distribute.ReduceOp.SUM

    @tf.function
    def doublings() -> tf.Tensor:
        def doubled(value: tf.Tensor) -> tf.Tensor:
            context = tf.distribute.get_replica_context
            sums = strategy.run(lambda: context().all_reduce(total, tf.identity(value)))
            return strategy.experimental_local_results(sums)[0]

        return tf.while_loop(
            lambda value, _: doubled(value) < 100.0,
            lambda value, steps: (doubled(value), steps + 1),
            (tf.constant(1.0), tf.constant(0)),
        )[1]

    assert doublings() == 6  # 64 is the first whose double is not below 100


def test_local_replicas_draw_together_whatever_other_threads_do() -> None:
    counts = [0, 0]

    def draw(replica: int) -> int:
        counts[replica] += 1
        return counts[replica]

    source = KeySource(2, draw)
    pairs = []

    def work() -> None:
        @tf.function
        def function() -> tuple[tf.Tensor, tf.Tensor]:
            graph = tf.compat.v1.get_default_graph()

            def hidden_input() -> tf.Tensor:
                return graph.capture_call_time_value(
                    lambda: tf.constant(0), tf.TensorSpec([], tf.int32)
                )

            mine = [source.key(replica, hidden_input) for replica in range(2)]
            return tf.identity(mine[0]), tf.identity(mine[1])

        for _ in range(50):
            pairs.append(tuple(map(int, function())))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(pairs)) == len(pairs) == 200
    assert all(first == second for first, second in pairs)


def test_collectives_of_one_kind_take_the_same_keys_in_turn() -> None:
    counts = [0, 0]

    def draw(replica: int) -> int:
        counts[replica] += 1
        return counts[replica]

    source = KeySource(2, draw)

    @tf.function
    def function(limit: tf.Tensor) -> tuple[Any, Any]:
        graph = tf.compat.v1.get_default_graph()

        def key(kind: Any) -> list[tf.Tensor]:
            spec = tf.TensorSpec([], tf.int32)
            return [
                source.key(replica, lambda: graph.capture_call_time_value(lambda: 0, spec), kind)
                for replica in range(2)
            ]

        keys = [key("sum"), key("sum"), key("gather"), key(None)]
        in_loop = tf.while_loop(lambda i, _: i < limit, lambda i, _: (i + 1, key("sum")[0]), (0, 0))
        return keys, in_loop[1]

    calls = [tf.nest.map_structure(int, function(tf.constant(2))) for _ in range(40)]
    numbers = np.array([keys for keys, _ in calls])
    assert (numbers[..., 0] == numbers[..., 1]).all()
    sums, gathers, others = numbers[:, :2, 0].ravel(), numbers[:, 2, 0], numbers[:, 3, 0]
    for turns in (sums, gathers):
        assert len({*turns}) == len({*turns[:16]}) == 16
        assert (turns[16:] == turns[:-16]).all()
    assert len({*others}) == len({in_loop for _, in_loop in calls}) == 40
    assert len({*sums, *gathers, *others}) == 16 + 16 + 40


def test_eagerly_a_single_replica_takes_turns() -> None:
    numbers = itertools.count()
    source = KeySource(1, lambda _: next(numbers))
    assert [int(source.key(0, int, "gather")) for _ in range(40)] == [i % 16 for i in range(40)]
    assert int(source.key(0, int)) == 16
    several = KeySource(2, lambda replica: next(numbers))
    assert [int(several.key(i % 2, int, "gather")) for i in range(20)] == [*range(17, 37)]
