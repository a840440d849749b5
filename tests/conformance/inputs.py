"""Distributed datasets: who gets what, how they are iterated over, and how they end."""

import contextlib
import functools
import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.conformance.promise import local, number_of_workers, promise, task

Strategy = tf.distribute.Strategy
BATCH = 8


def numbers(count: int, batch: int = BATCH) -> tf.data.Dataset:
    """Batches of the numbers up to `count`, that all workers share."""
    dataset = tf.data.Dataset.range(count).batch(batch)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    options.autotune.enabled = False  # its thread outlives an iterator that is not at its end
    return dataset.with_options(options)


@functools.cache
def gather(strategy: Strategy) -> Any:
    """Returns a function that is traced once; `strategy.gather` is each time that it is called."""
    return tf.function(lambda value: strategy.gather(value, axis=0), reduce_retracing=True)


def everyone(strategy: Strategy, value: Any) -> np.ndarray:
    """Returns what all replicas have of a batch, which may be nothing."""
    return gather(strategy)(value).numpy()


def all_batches(strategy: Strategy, batches: Iterable[Any]) -> list[list[int]]:
    return [sorted(everyone(strategy, batch).tolist()) for batch in batches]


def by_for(distributed: Any) -> list[Any]:
    return list(distributed)


def by_get_next(distributed: Any) -> list[Any]:
    iterator, batches = iter(distributed), []
    with contextlib.suppress(tf.errors.OutOfRangeError):
        while True:
            batches.append(iterator.get_next())
    return batches


def by_optional(distributed: Any) -> list[Any]:
    iterator, batches = iter(distributed), []
    while (optional := iterator.get_next_as_optional()).has_value():
        batches.append(optional.get_value())
    return batches


@promise(each=(by_for, by_get_next, by_optional))
def each_element_is_seen_once(strategy: Strategy, way: Any) -> None:
    """Also in a last batch of which some replicas get nothing; in two epochs."""
    distributed = strategy.experimental_distribute_dataset(numbers(BATCH + 1))
    for _ in range(2):
        batches = all_batches(strategy, way(distributed))
        assert sorted(itertools.chain(*batches)) == list(range(BATCH + 1))
        assert len(batches) == 2


@promise()
def a_loop_over_a_dataset_runs_in_a_function(strategy: Strategy) -> None:
    distributed = strategy.experimental_distribute_dataset(numbers(13))

    @tf.function
    def loop(distributed: Any) -> Any:
        result, steps = tf.constant(0, tf.int64), 0
        for batch in distributed:
            part = strategy.run(tf.reduce_sum, args=(batch,))
            result += strategy.reduce("SUM", part, axis=None)
            steps += 1
        return result, steps

    result, steps = loop(distributed)
    assert result == sum(range(13))
    assert steps == 2


@promise()
def a_step_takes_the_next_batch_of_an_iterator(strategy: Strategy) -> None:
    """Of a dataset without an end, in a function that is traced once."""
    iterator = iter(strategy.experimental_distribute_dataset(numbers(16).repeat()))
    traces = []

    @tf.function
    def steps(iterator: Any, times: Any) -> Any:
        traces.append(1)
        total = tf.constant(0, tf.int64)
        for _ in tf.range(times):
            part = strategy.run(tf.reduce_sum, args=(next(iterator),))
            total += strategy.reduce("SUM", part, axis=None)
        return total

    assert steps(iterator, tf.constant(4)) == 2 * sum(range(16))
    assert steps(iterator, tf.constant(2)) == sum(range(16))
    assert len(traces) == 1


@promise()
def datasets_of_a_function_are_per_worker(strategy: Strategy) -> None:
    """The function is called once on each worker, and what it returns is not sharded."""
    contexts: list[Any] = []
    replicas, workers = strategy.num_replicas_in_sync, number_of_workers(strategy)

    def make(context: tf.distribute.InputContext) -> tf.data.Dataset:
        contexts.append(context)
        batch = context.get_per_replica_batch_size(2 * replicas)
        shard = tf.data.Dataset.range(10 * replicas).shard(
            context.num_input_pipelines, context.input_pipeline_id
        )
        return shard.batch(batch)

    distributed = strategy.distribute_datasets_from_function(make)
    (context,) = contexts
    assert context.num_replicas_in_sync == replicas
    assert context.num_input_pipelines == workers
    assert context.input_pipeline_id == task(strategy)
    assert context.get_per_replica_batch_size(2 * replicas) == 2
    with pytest.raises(ValueError, match="divisible"):
        context.get_per_replica_batch_size(2 * replicas + 1)
    batches = all_batches(strategy, distributed)
    assert len(batches) == 5
    assert {len(batch) for batch in batches} == {2 * replicas}
    assert sorted(itertools.chain(*batches)) == list(range(10 * replicas))


@promise()
def without_sharding_each_worker_sees_all(strategy: Strategy) -> None:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = numbers(16).with_options(options)
    seen = []
    for batch in strategy.experimental_distribute_dataset(dataset):
        for part in strategy.experimental_local_results(batch):
            seen += part.numpy().tolist()
    assert sorted(seen) == list(range(16))


@promise()
def a_replica_without_elements_gets_an_empty_part_of_the_same_shape(strategy: Strategy) -> None:
    """The second batch has one element, for one replica."""
    dataset = numbers(BATCH + 1).map(lambda x: tf.ones([tf.size(x), 3]))
    *_, last = strategy.experimental_distribute_dataset(dataset)
    rows = 0
    for part in local(strategy, last):
        assert part.shape in ((0, 3), (1, 3))
        rows += len(part)
    everyone = strategy.gather(last, axis=0)
    assert everyone.shape == [1, 3]
    assert rows <= 1
    mean = strategy.reduce("MEAN", last, axis=0)
    np.testing.assert_array_equal(mean, [1, 1, 1])
