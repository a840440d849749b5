"""The two contexts, and errors for what is done in the wrong one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.conformance.promise import (
    MODES,
    local,
    local_ids,
    number_of_workers,
    numbers,
    of_replicas,
    promise,
    replica,
    staged,
)

Strategy = tf.distribute.Strategy


@promise(each=MODES)
def run_calls_the_function_in_a_context_of_each_replica(strategy: Strategy, mode: str) -> None:
    seen = []

    def step() -> Any:
        context = tf.distribute.get_replica_context()
        seen.append(
            context.strategy is tf.distribute.get_strategy() is strategy
            and context.num_replicas_in_sync == strategy.num_replicas_in_sync
            and not tf.distribute.in_cross_replica_context()
        )
        return replica()

    ids = numbers(strategy, staged(mode, lambda: strategy.run(step))())
    assert ids == local_ids(strategy)
    assert set(ids) <= set(range(strategy.num_replicas_in_sync))
    assert len(seen) == len(ids)
    assert all(seen)


@promise()
def replicas_run_on_the_strategys_devices(strategy: Strategy) -> None:
    values = strategy.experimental_local_results(strategy.run(lambda: tf.ones([]) + 1))
    for value, device in zip(values, strategy.extended.worker_devices, strict=True):
        actual, expected = map(tf.DeviceSpec.from_string, (value.device, device))
        assert actual.device_type == expected.device_type
        assert actual.device_index == expected.device_index


@promise(each=MODES)
def run_gives_each_replica_its_part_of_the_arguments(strategy: Strategy, mode: str) -> None:
    values, value = of_replicas(strategy, lambda i: {"a": tf.fill([2], i)})

    def step(mine: Any, same: Any, *, name: str, nothing: None) -> Any:
        assert name == "text"
        assert nothing is None
        return {"sum": mine["a"] + same, "same": [same, replica()]}

    def run(value: Any) -> Any:
        keywords = {"name": "text", "nothing": None}
        return strategy.run(step, args=(value, tf.constant(7)), kwargs=keywords)

    result = staged(mode, run)(value)
    for i, total in zip(local_ids(strategy), local(strategy, result["sum"]), strict=True):
        np.testing.assert_array_equal(total, values[i]["a"].numpy() + 7)
    assert numbers(strategy, result["same"][1]) == local_ids(strategy)
    assert set(numbers(strategy, result["same"][0])) == {7}


@promise()
def errors_of_a_replica_reach_the_caller(strategy: Strategy) -> None:
    def in_replica() -> None:
        raise KeyError("in a replica")

    def in_merge(strategy: Strategy) -> None:
        raise KeyError("in a merge")

    with pytest.raises(KeyError, match="in a replica"):
        strategy.run(in_replica)
    with pytest.raises(KeyError, match="in a merge"):
        strategy.run(lambda: tf.distribute.get_replica_context().merge_call(in_merge))
    assert not tf.distribute.has_strategy()
    assert numbers(strategy, strategy.run(replica)) == local_ids(strategy)


@promise(each=MODES)
def merge_call_brings_all_local_replicas_together(strategy: Strategy, mode: str) -> None:
    calls = []

    def merge(merged: Strategy, mine: Any, same: Any, *, key: str) -> Any:
        calls.append(
            merged is strategy
            and tf.distribute.in_cross_replica_context()
            and tf.distribute.get_replica_context() is None
            and key == "text"
        )
        total = sum(merged.experimental_local_results(mine)) + same
        return merged.run(lambda value: value + replica(), args=(total,))

    def step() -> Any:
        context = tf.distribute.get_replica_context()
        merged = context.merge_call(merge, args=(replica(), 100), kwargs={"key": "text"})
        assert tf.distribute.get_replica_context() is context
        return merged

    ids = local_ids(strategy)
    result = numbers(strategy, staged(mode, lambda: strategy.run(step))())
    assert calls == [True]
    assert result == [100 + sum(ids) + i for i in ids]


@promise()
def what_needs_the_other_context_is_refused(strategy: Strategy) -> None:
    replica_contexts = []

    def merge(merged: Strategy) -> None:
        with pytest.raises(RuntimeError):
            replica_contexts[0].merge_call(lambda strategy: None)

    def step() -> None:
        context = tf.distribute.get_replica_context()
        replica_contexts.append(context)
        for misuse in (
            lambda: strategy.run(lambda: None),
            lambda: strategy.reduce("SUM", tf.ones([]), axis=None),
            lambda: strategy.gather(tf.ones([1]), axis=0),
            lambda: strategy.extended.reduce_to("SUM", tf.ones([]), "CPU:0"),
        ):
            with pytest.raises(RuntimeError):
                misuse()
        context.merge_call(merge)

    strategy.run(step)
    with strategy.scope(), pytest.raises(RuntimeError):
        replica_contexts[0].all_reduce("SUM", tf.ones([]))


@promise()
def replicas_that_do_not_meet_at_the_same_merge_are_an_error(strategy: Strategy) -> None:
    if len(strategy.extended.worker_devices) == 1:
        return
    turn = iter((True, False))

    def step() -> None:
        if next(turn, False):
            tf.distribute.get_replica_context().merge_call(lambda strategy: None)

    with pytest.raises(RuntimeError, match="merge_call"):
        strategy.run(step)


@promise()
def the_extended_part_describes_the_devices(strategy: Strategy) -> None:
    extended = strategy.extended
    assert len(set(extended.worker_devices)) == len(extended.worker_devices)
    assert tuple(extended.parameter_devices) == tuple(extended.worker_devices)
    workers = number_of_workers(strategy)
    assert len(extended.worker_devices) * workers == strategy.num_replicas_in_sync
    assert extended.experimental_between_graph == (workers > 1)
    assert extended.experimental_require_static_shapes is False
    chief = local_ids(strategy)[0] == 0
    assert extended.should_checkpoint == chief
    assert extended.should_save_summary == chief


@promise()
def local_results_are_a_tuple(strategy: Strategy) -> None:
    values, value = of_replicas(strategy, lambda i: tf.constant(i))
    results = strategy.experimental_local_results(value)
    assert isinstance(results, tuple)
    assert [int(v) for v in results] == [int(values[i]) for i in local_ids(strategy)]
    assert strategy.experimental_local_results("not distributed") == ("not distributed",)
    nested = strategy.experimental_local_results({"a": value, "b": 1})
    assert [{k: int(v) for k, v in each.items()} for each in nested] == [
        {"a": i, "b": 1} for i in local_ids(strategy)
    ]


@promise(one_host=True, each=MODES)
def functions_and_loops_nest_in_a_replica(strategy: Strategy, mode: str) -> None:
    @tf.function
    def power(x: Any, times: Any) -> Any:
        result = tf.ones([], tf.int32)
        for _ in tf.range(times):
            result *= x
        return result

    def step(x: Any) -> Any:
        return tf.cond(x > 1, lambda: power(x, 3), lambda: -power(x, 2))

    values, value = of_replicas(strategy, lambda i: tf.constant(i + 1))
    result = staged(mode, lambda v: strategy.run(step, args=(v,)))(value)
    assert numbers(strategy, result) == [-1 if v == 1 else v**3 for v in map(int, values)]


@promise()
def generators_give_each_replica_other_numbers(strategy: Strategy) -> None:
    with strategy.scope():
        generator = tf.random.Generator.from_seed(1)
    numbers = strategy.run(lambda: generator.uniform([3]))
    everyone = strategy.gather(strategy.run(lambda x: x[None], args=(numbers,)), axis=0)
    assert len({tuple(row) for row in everyone.numpy()}) == strategy.num_replicas_in_sync
