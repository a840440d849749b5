"""Entering and leaving the scope of a strategy, and copies of one."""

from __future__ import annotations

import copy

import pytest
import tensorflow as tf

from tests.conformance.promise import distributed, promise

Strategy = tf.distribute.Strategy


def assert_no_strategy() -> None:
    assert not tf.distribute.has_strategy()
    assert not tf.distribute.in_cross_replica_context()
    assert tf.distribute.get_replica_context().num_replicas_in_sync == 1


@promise()
def a_scope_is_a_cross_replica_context_and_ends(strategy: Strategy) -> None:
    assert_no_strategy()
    with pytest.raises(KeyError), strategy.scope() as entered:  # noqa: PT012
        assert entered is strategy
        assert tf.distribute.has_strategy()
        assert tf.distribute.get_strategy() is strategy
        assert tf.distribute.in_cross_replica_context()
        assert tf.distribute.get_replica_context() is None
        with strategy.scope():  # again
            assert tf.distribute.get_strategy() is strategy
        assert tf.distribute.get_strategy() is strategy
        raise KeyError
    assert_no_strategy()


@promise()
def a_strategy_may_be_set_for_good(strategy: Strategy) -> None:
    tf.distribute.experimental_set_strategy(strategy)
    try:
        assert tf.distribute.get_strategy() is strategy
        assert tf.distribute.in_cross_replica_context()
    finally:
        tf.distribute.experimental_set_strategy(None)
    assert_no_strategy()


@promise()
def the_scope_of_another_strategy_is_refused(strategy: Strategy) -> None:
    other = tf.distribute.OneDeviceStrategy("CPU:0")
    for outer, inner in ((strategy, other), (other, strategy)):
        with (
            outer.scope(),
            pytest.raises(RuntimeError, match="Strategy"),
            inner.scope(),
        ):
            pass
    assert_no_strategy()


@promise(one_host=True)
def a_copy_is_a_strategy_of_its_own(strategy: Strategy) -> None:
    duplicate = copy.deepcopy(strategy)
    assert duplicate is not strategy
    assert duplicate.num_replicas_in_sync == strategy.num_replicas_in_sync
    ones = distributed(duplicate, [tf.ones([])] * duplicate.num_replicas_in_sync)
    assert duplicate.reduce("SUM", ones, axis=None) == duplicate.num_replicas_in_sync
    with duplicate.scope():
        assert tf.distribute.get_strategy() is duplicate
