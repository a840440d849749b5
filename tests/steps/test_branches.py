"""Branches whose outputs do not wait for each other, and sums that do not wait for a branch."""

import contextlib
import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.conftest import REPLICAS
from tests.strategies.helpers import ancestors, strategy_of, variables_of
from tf_gc import _compat

# Optimizers of graphs may remove what nothing seems to need.
pytestmark = pytest.mark.optimized_graphs


def test_an_output_does_not_wait_for_the_others() -> None:
    """A function of the first output runs while the second one is made."""
    used = threading.Event()

    def use(value: np.ndarray) -> np.ndarray:
        used.set()
        return value

    def wait(value: np.ndarray) -> np.ndarray:
        return np.float32(used.wait(600))

    @tf.function
    def step(pred: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def both() -> tuple[tf.Tensor, tf.Tensor]:
            return 2 * x, tf.numpy_function(wait, [x], tf.float32)

        first, second = _compat.cond(pred, both, lambda: (x, x))
        return tf.numpy_function(use, [first], tf.float32, stateful=False), second

    assert [float(value) for value in step(tf.constant(True), tf.constant(3.0))] == [6, 1]


def test_side_effects_run_in_order_and_before_what_comes_later() -> None:
    count, log = tf.Variable(0), tf.Variable(0)

    @tf.function
    def step(pred: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        def effects() -> tf.Tensor:
            for digit in (1, 2, 3):  # no output needs any of them
                log.assign(10 * log + digit)
            _compat.cond(x > 0, lambda: count.assign_add(5), lambda: count.assign_sub(5))
            return x + 1

        before = log.read_value()
        result = _compat.cond(pred, effects, lambda: x)
        return result, before, log.read_value() + count.read_value()

    assert [int(value) for value in step(tf.constant(True), tf.constant(1))] == [2, 0, 128]
    assert [int(value) for value in step(tf.constant(False), tf.constant(1))] == [1, 123, 128]
    assert [int(value) for value in step(tf.constant(True), tf.constant(-1))] == [0, 123, 123_123]
    assert count == 0
    assert _compat.cond(tf.constant(True), lambda: 3, lambda: 4) == 3  # outside of functions


@cases("fails", True, False)
def test_tensorflows_branches_stay_as_they_are(fails: bool) -> None:
    log = tf.Variable(0)

    def first() -> tf.Tensor:
        if fails:
            raise KeyError("no such thing")
        return tf.constant(0)

    @tf.function
    def step(pred: tf.Tensor) -> tf.Tensor:
        with pytest.raises(KeyError) if fails else contextlib.nullcontext():
            _compat.cond(pred, first, lambda: tf.constant(1))

        def effects() -> tf.Tensor:
            for digit in (1, 2, 3):
                log.assign(10 * log + digit)
            return tf.constant(0)

        return tf.cond(pred, effects, lambda: tf.constant(1))

    assert step(tf.constant(True)) == 0
    assert log == 123


def test_what_a_branch_reads_is_read_in_its_turn() -> None:
    variable = tf.Variable(1)

    @tf.function
    def step(pred: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, None]:
        def reads() -> tuple[tf.Tensor, tf.Variable, None]:
            before = variable.value()
            variable.assign(2)
            return before, variable, None

        result = _compat.cond(pred, reads, lambda: (variable.value(), variable, None))
        variable.assign(3)
        return result

    assert [int(value) for value in step(tf.constant(True))[:2]] == [1, 2]
    assert variable == 3


@pytest.mark.parametrize(
    "params", [tf_gc.Quantized(), tf_gc.Auto(tf_gc.Quantized())], ids=["warm-up", "auto"]
)
def test_a_sum_waits_for_no_other_bucket(params: tf_gc.params.CompressionParams) -> None:
    strategy = strategy_of(params)
    variables = variables_of(strategy, (1024, 1024), (1024, 1025))  # a bucket each

    @tf.function
    def step() -> Any:
        return strategy.run(
            lambda: tf_gc.all_reduce_gradients([(tf.ones_like(v), v) for v in variables])
        )

    library = step.get_concrete_function().graph.as_graph_def().library
    branches = [
        ({node.name: node for node in function.node_def}, function.ret)
        for function in library.function
        if [node.op for node in function.node_def].count("TfGc>Encode") == 4
    ]
    assert branches, "there are branches in which two replicas encode two buckets"
    for nodes, ret in branches:
        sums = [value for value in ret.values() if encodes_before(nodes, value)]
        assert len(sums) == 4, "a sum of each bucket on each replica"
        for value in sums:
            assert encodes_before(nodes, value) == 2


def encodes_before(nodes: dict[str, Any], value: str) -> int:
    """How many gradients are encoded before a value of a function is there."""
    found: set[str] = set()
    waiting = [value]
    while waiting:
        name = waiting.pop().lstrip("^").split(":")[0]
        if name in nodes and name not in found:
            found.add(name)
            waiting += nodes[name].input
    return sum(nodes[name].op == "TfGc>Encode" for name in found)


def test_what_is_not_compressed_does_not_wait_for_what_is() -> None:
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params={"type": "2bit"})
    large, small = variables_of(strategy, (64, 64), (3,))

    @tf.function
    def step() -> Any:
        return strategy.run(
            lambda: tf_gc.all_reduce_gradients([(tf.ones_like(v), v) for v in (large, small)])
        )

    assert strategy.num_replicas_in_sync == REPLICAS
    graph = step.get_concrete_function().graph
    reductions = [op for op in graph.get_operations() if op.type == "CollectiveReduceV2"]
    assert reductions, "the small gradient is summed by a collective"
    for reduction in reductions:
        assert not {"If", "Case"} & {op.type for op in ancestors(reduction)}
    assert any(op.type == "If" for op in graph.get_operations()), "the large one, in the warm-up"
    for value in strategy.experimental_local_results(step()[1]):
        np.testing.assert_array_equal(value, REPLICAS * np.ones(3))
