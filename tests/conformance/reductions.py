"""Reductions and gathers, from outside of the replicas and by them; and their gradients."""

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

Strategy = tf.distribute.Strategy
SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN
OPS = {SUM: np.sum, MEAN: np.mean}
DTYPES = (tf.float16, tf.bfloat16, tf.float64, tf.int64)
GATHERED = tuple(dtype for dtype in DTYPES if dtype != tf.bfloat16)
# Sparse gradients of replicas have as many rows as their batches have words.
ROWS = ("same number of rows", "different numbers of rows")


def matrix(i: int) -> tf.Tensor:
    return tf.constant(np.arange(6).reshape(2, 3) + 10 * i, tf.float32)


def slices(rows: str, i: int) -> tf.IndexedSlices:
    """Rows of a [5, 2] tensor, some of them twice."""
    count = 2 if rows == ROWS[0] else 2 + i
    return tf.IndexedSlices(
        tf.reshape(tf.range(count * 2, dtype=tf.float32) + i, [count, 2]),
        tf.constant([0, 3, 3, 1, 4, 0, 2][:count]),
        tf.constant([5, 2]),
    )


def dense(value: Any) -> np.ndarray:
    return tf.convert_to_tensor(value).numpy()


@promise(each=itertools.product(OPS, (None, 0, 1)))
def reduce_goes_over_replicas_and_an_axis(strategy: Strategy, op: Any, axis: int | None) -> None:
    values, value = of_replicas(strategy, matrix)
    result = tf.function(lambda v: strategy.reduce(op, v, axis))(value)
    if axis is None:
        expected = OPS[op]([v.numpy() for v in values], axis=0)
    else:
        expected = OPS[op](np.concatenate([v.numpy() for v in values], axis), axis=axis)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@promise(each=itertools.product(OPS, MODES))
def a_mean_over_uneven_batches_weighs_examples_alike(
    strategy: Strategy, op: Any, mode: str
) -> None:
    values, value = of_replicas(strategy, lambda i: tf.range(i + 1, dtype=tf.float32) + 5.0 * i)
    result = staged(mode, lambda v: strategy.reduce(op, v, axis=0))(value)
    np.testing.assert_allclose(result, OPS[op](np.concatenate([v.numpy() for v in values])))


def part(axis: int, i: int) -> tf.Tensor:
    """A part of a matrix; they differ in length."""
    shape = [3, 3]
    shape[axis] = 2 + i
    return tf.constant(np.arange(np.prod(shape)).reshape(shape) + 100 * i, tf.float32)


@promise(each=zip(OPS, MODES, strict=True))
def reduce_to_the_devices_of_a_variable(strategy: Strategy, op: Any, mode: str) -> None:
    with strategy.scope():
        variable = tf.Variable(tf.zeros([2, 3]))
    values, value = of_replicas(strategy, matrix)
    expected = OPS[op]([v.numpy() for v in values], axis=0)

    def reduce(value: Any) -> Any:
        one = strategy.extended.reduce_to(op, value, variable)
        two = strategy.extended.batch_reduce_to(op, [(value, variable), (value, variable)])
        # Of a mirrored value, a tf.function returns one replica's.
        return [strategy.experimental_local_results(result) for result in (one, *two)]

    with strategy.scope():
        results = staged(mode, reduce)(value)
    assert len(results) == 3
    for components in results:
        assert len(components) == len(strategy.extended.worker_devices)
        for component in components:
            np.testing.assert_allclose(component, expected)


@promise(each=ROWS)
def a_batch_may_mix_dense_and_sparse_values_and_shapes(strategy: Strategy, rows: str) -> None:
    shapes = ([3], [], [2, 2], [5, 2])
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(shape)) for shape in shapes]

    def values_of(i: int) -> list[Any]:
        return [tf.fill(shape, i + 1.0) for shape in shapes[:3]] + [slices(rows, i)]

    values, value = of_replicas(strategy, values_of)

    def reduce(value: Any) -> Any:
        pairs = list(zip(value, variables, strict=True))
        return strategy.extended.batch_reduce_to(SUM, pairs)

    with strategy.scope():
        results = tf.function(reduce)(value)
    for k, result in enumerate(results):
        expected = np.sum([dense(v[k]) for v in values], axis=0)
        for each in strategy.experimental_local_results(result):
            np.testing.assert_array_equal(dense(each), expected)


@promise()
def broadcast_copies_to_all_devices(strategy: Strategy) -> None:
    with strategy.scope():
        variable = tf.Variable(0.0)
        copies = strategy.extended.broadcast_to(tf.constant([1.0, 2.0]), variable)
    assert_on_all(strategy, copies, [1, 2])


@promise()
def reductions_run_in_loops_and_branches(strategy: Strategy) -> None:
    """A step whose loop is in the graph, around everything that the strategy does."""
    _run_in_loops_and_branches(strategy, ROWS[0])


# Under the stock strategy the iterations of a loop share the key of a collective.
@promise(broken_by_stock="workers")
def reductions_in_loops_may_differ_in_rows(strategy: Strategy) -> None:
    _run_in_loops_and_branches(strategy, ROWS[1])


def _run_in_loops_and_branches(strategy: Strategy, rows: str) -> None:
    replicas = strategy.num_replicas_in_sync

    @tf.function
    def steps(times: Any) -> Any:
        total, table, gathered = tf.zeros([]), tf.zeros([5, 2]), tf.zeros([replicas])
        for i in tf.range(times):
            value = strategy.run(lambda: tf.cast(replica() + 1, tf.float32))
            if i % 2 == 0:
                total += strategy.reduce(SUM, value, axis=None)
            else:
                gathered += strategy.gather(strategy.run(lambda v: v[None], args=(value,)), axis=0)
            table += tf.convert_to_tensor(strategy.reduce(SUM, strategy.run(rows_of, (i,)), None))
        return total, table, gathered

    def rows_of(i: Any) -> tf.IndexedSlices:
        count = 2 if rows == ROWS[0] else 1 + replica() + i
        return tf.IndexedSlices(tf.ones([count, 2]), tf.fill([count], i), tf.constant([5, 2]))

    total, table, gathered = steps(tf.constant(3))
    ids = np.arange(1, replicas + 1)
    assert total == 2 * ids.sum()
    np.testing.assert_array_equal(gathered, ids)
    counts = [np.sum(ids + i) if rows == ROWS[1] else 2 * replicas for i in range(3)]
    np.testing.assert_array_equal(table[:, 0], [*counts, 0, 0])


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


@promise(each=DTYPES, on_workers=(tf.float16, tf.bfloat16, tf.int64))
def reductions_and_gathers_keep_the_dtype(strategy: Strategy, dtype: tf.DType) -> None:
    values, value = of_replicas(strategy, lambda i: tf.cast(tf.range(4) + i, dtype))
    arrays = [tf.cast(v, tf.float64).numpy() for v in values]
    gathers = dtype in GATHERED

    def step(mine: Any) -> Any:
        mine = here(mine)
        total = context().all_reduce("SUM", mine)
        return total, context().all_gather(mine, axis=0) if gathers else None

    total, gathered = tf.function(lambda v: strategy.run(step, args=(v,)))(value)
    results = [
        (strategy.reduce(SUM, value, axis=None), np.sum(arrays, axis=0)),
        (strategy.reduce(SUM, value, axis=0), np.sum(arrays)),
        (total, np.sum(arrays, axis=0)),
    ]
    if gathers:
        results += [(v, np.hstack(arrays)) for v in (strategy.gather(value, axis=0), gathered)]
    for result, expected in results:
        for each in strategy.experimental_local_results(result):
            assert each.dtype == dtype
            np.testing.assert_array_equal(tf.cast(each, tf.float64), expected)


@promise(each=itertools.product(ROWS, MODES))
def reductions_add_indexed_slices(strategy: Strategy, rows: str, mode: str) -> None:
    """From outside, and by replicas: alone, and in a structure with dense tensors."""
    values, value = of_replicas(strategy, functools.partial(slices, rows))

    def step(mine: Any) -> Any:
        mixed = context().all_reduce(SUM, [tf.ones([2]), mine, tf.ones([])])
        return [context().all_reduce(SUM, mine), *mixed]

    def reduce(value: Any) -> Any:
        return strategy.reduce(SUM, value, axis=None), strategy.run(step, args=(value,))

    outside, (alone, ones, mixed, one) = staged(mode, reduce)(value)
    expected = np.sum([dense(v) for v in values], axis=0)
    for result in (outside, alone, mixed):
        for each in strategy.experimental_local_results(result):
            np.testing.assert_array_equal(dense(each), expected)
    assert_on_all(strategy, ones, [strategy.num_replicas_in_sync] * 2)
    assert_on_all(strategy, one, strategy.num_replicas_in_sync)


@promise(each=itertools.product((0, 1), MODES))
def gathers_concatenate_in_the_order_of_replicas(strategy: Strategy, axis: int, mode: str) -> None:
    def step(mine: Any) -> Any:
        return context().all_gather({"a": here(mine), "b": [-mine]}, axis)

    def gather(value: Any) -> Any:
        return strategy.gather(value, axis), strategy.run(step, args=(value,))

    values, value = of_replicas(strategy, functools.partial(part, axis))
    outside, inside = staged(mode, gather)(value)
    expected = np.concatenate([v.numpy() for v in values], axis)
    np.testing.assert_array_equal(outside, expected)
    assert_on_all(strategy, inside["a"], expected)
    assert_on_all(strategy, inside["b"][0], -expected)


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
