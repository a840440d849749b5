"""Reductions and gathers that replicas ask for, and their gradients."""

import functools
import itertools
from typing import Any

import numpy as np
import tensorflow as tf

from tests.conformance.promise import (
    MODES,
    assert_on_all,
    distributed,
    local,
    local_ids,
    of_replicas,
    promise,
    replica,
    staged,
)
from tests.conformance.reductions import (
    DTYPES,
    GATHERED,
    MEAN,
    OPS,
    ROWS,
    SUM,
    dense,
    matrix,
    part,
    slices,
)

Strategy = tf.distribute.Strategy


def context() -> Any:
    return tf.distribute.get_replica_context()


def here(value: Any) -> Any:
    """Returns tensors that have a device, as results of a replica's computation do.

    Arguments of a function have none, and a single local replica needs it.
    """
    return tf.nest.map_structure(tf.identity, value)


@promise(each=itertools.product(OPS, MODES))
def all_reduce_gives_every_replica_the_same(strategy: Strategy, op: Any, mode: str) -> None:
    """A structure at once, with tensors of several shapes."""
    values, value = of_replicas(strategy, lambda i: {"a": matrix(i), "b": (tf.constant(1.0 + i),)})

    def step(mine: Any) -> Any:
        return context().all_reduce(op, here(mine))

    result = staged(mode, lambda v: strategy.run(step, args=(v,)))(value)
    assert_on_all(strategy, result["a"], OPS[op]([v["a"] for v in values], axis=0))
    assert_on_all(strategy, result["b"][0], OPS[op]([v["b"][0] for v in values]))


@promise(each=DTYPES, on_workers=(tf.bfloat16, tf.int64))
def all_reduce_and_all_gather_keep_the_dtype(strategy: Strategy, dtype: tf.DType) -> None:
    values, value = of_replicas(strategy, lambda i: tf.cast(tf.range(4) + i, dtype))

    def step(mine: Any) -> Any:
        mine = here(mine)
        total = context().all_reduce("SUM", mine)
        return total, context().all_gather(mine, axis=0) if dtype in GATHERED else None

    total, gathered = tf.function(lambda v: strategy.run(step, args=(v,)))(value)
    arrays = [v.numpy() for v in values]
    assert local(strategy, total)[0].dtype == dtype.as_numpy_dtype
    assert_on_all(strategy, total, np.sum(arrays, axis=0))
    if dtype in GATHERED:
        assert local(strategy, gathered)[0].dtype == dtype.as_numpy_dtype
        assert_on_all(strategy, gathered, np.concatenate(arrays))


@promise(each=itertools.product(ROWS, MODES))
def all_reduce_adds_indexed_slices(strategy: Strategy, rows: str, mode: str) -> None:
    """Alone, and in a structure with dense tensors."""
    values, value = of_replicas(strategy, functools.partial(slices, rows))

    def step(mine: Any) -> Any:
        mixed = context().all_reduce(SUM, [tf.ones([2]), mine, tf.ones([])])
        return [context().all_reduce(SUM, mine), *mixed]

    alone, ones, mixed, one = staged(mode, lambda v: strategy.run(step, args=(v,)))(value)
    expected = np.sum([dense(v) for v in values], axis=0)
    for result in (alone, mixed):
        for each in strategy.experimental_local_results(result):
            np.testing.assert_array_equal(dense(each), expected)
    assert_on_all(strategy, ones, [strategy.num_replicas_in_sync] * 2)
    assert_on_all(strategy, one, strategy.num_replicas_in_sync)


@promise(each=itertools.product((0, 1), MODES))
def all_gather_concatenates_in_the_order_of_replicas(
    strategy: Strategy, axis: int, mode: str
) -> None:
    def step(mine: Any) -> Any:
        return context().all_gather({"a": here(mine), "b": [-mine]}, axis)

    values, value = of_replicas(strategy, functools.partial(part, axis))
    result = staged(mode, lambda v: strategy.run(step, args=(v,)))(value)
    expected = np.concatenate([v.numpy() for v in values], axis)
    assert_on_all(strategy, result["a"], expected)
    assert_on_all(strategy, result["b"][0], -expected)


@promise(each=OPS)
def the_gradient_of_all_reduce_is_reduced_alike(strategy: Strategy, op: Any) -> None:
    replicas = strategy.num_replicas_in_sync
    _, value = of_replicas(strategy, lambda i: tf.constant([1.0 + i, 2.0]))

    def step(mine: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(mine)
            total = context().all_reduce(op, tf.square(mine))
            loss = tf.reduce_sum(total) * tf.cast(replica() + 1, tf.float32)
        return tape.gradient(loss, mine)

    gradients = local(strategy, tf.function(lambda v: strategy.run(step, args=(v,)))(value))
    upstream = OPS[op](np.arange(1, replicas + 1))
    for i, gradient in zip(local_ids(strategy), gradients, strict=True):
        np.testing.assert_allclose(gradient, 2 * np.array([1.0 + i, 2.0]) * upstream)


@promise()
def the_gradient_of_all_gather_adds_up_what_became_of_each_part(strategy: Strategy) -> None:
    replicas = strategy.num_replicas_in_sync
    _, value = of_replicas(strategy, lambda i: tf.fill([2], 1.0 + i))

    def step(mine: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(mine)
            everyone = context().all_gather(here(mine), axis=0)
            weights = tf.range(1.0, 2.0 * replicas + 1) * tf.cast(replica() + 1, tf.float32)
            loss = tf.reduce_sum(everyone * weights)
        return tape.gradient(loss, mine)

    gradients = local(strategy, tf.function(lambda v: strategy.run(step, args=(v,)))(value))
    weights = np.arange(1, 2 * replicas + 1) * np.arange(1, replicas + 1).sum()
    for i, gradient in zip(local_ids(strategy), gradients, strict=True):
        np.testing.assert_allclose(gradient, weights[2 * i : 2 * i + 2])


@promise()
def collectives_of_replicas_run_in_a_loop_around_them(strategy: Strategy) -> None:
    """All of them in each iteration, as many as the caller asks for."""

    @tf.function
    def steps(times: Any, value: Any) -> Any:
        def step(mine: Any) -> Any:
            mine = context().all_reduce(MEAN, here(mine))
            return tf.reduce_sum(context().all_gather(mine, axis=0), axis=0, keepdims=True)

        total = tf.zeros([1])
        for _ in tf.range(times):
            total += strategy.reduce(MEAN, strategy.run(step, args=(value,)), axis=None)
        return total

    replicas = strategy.num_replicas_in_sync
    value = distributed(strategy, [tf.constant([float(i)]) for i in range(replicas)])
    for times in (2, 3):
        total = steps(tf.constant(times), value)
        np.testing.assert_allclose(total, [times * sum(range(replicas))])
