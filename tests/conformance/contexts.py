"""The two contexts, and copies of a strategy."""

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
    """Which is on one of the strategy's devices."""
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
def the_extended_part_describes_the_devices(strategy: Strategy) -> None:
    extended = strategy.extended
    assert tuple(extended.parameter_devices) == tuple(extended.worker_devices)
    workers = number_of_workers(strategy)
    assert len(extended.worker_devices) * workers == strategy.num_replicas_in_sync
    assert extended.experimental_between_graph == (workers > 1)
    assert extended.experimental_require_static_shapes is False
    chief = local_ids(strategy)[0] == 0
    assert extended.should_checkpoint == chief
    assert extended.should_save_summary == chief
