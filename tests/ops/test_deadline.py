"""Deadlines of collectives in a graph; tests/multiworker/test_faults.py lets them expire."""

import tensorflow as tf

from tests.strategies.helpers import ancestors
from tf_gc import ops


def test_collectives_of_two_replicas_do_not_wait_for_each_other() -> None:
    tokens = [tf.Variable(0.0), tf.Variable(0.0)]

    @tf.function
    def step() -> list[tf.Tensor]:
        return [
            ops.within(60.0, tf.ones([]), [token.handle], lambda: tf.identity(1.0, name="sum"))
            for token in tokens
            for _ in range(2)
        ]

    graph = step.get_concrete_function().graph
    deadlines = [op for op in graph.get_operations() if op.type.endswith("Deadline")]
    assert [op.type for op in deadlines] == ["TfGc>BeginDeadline", "TfGc>EndDeadline"] * 4
    for number, op in enumerate(deadlines):
        # A replica's deadlines come one after the other: a collective's time is its own.
        mine = deadlines[4:number] if number >= 4 else deadlines[:number]
        assert ancestors(op) & set(deadlines) == set(mine)
    assert {op.get_attr("seconds") for op in deadlines[::2]} == {60.0}
