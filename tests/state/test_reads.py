"""A step, a save and a restore read variables as often as they must, and no more."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_callbacks

import tf_gc
from tests.strategies.helpers import cpus, reducer

SHAPE = (60, 40)
ASYNCHRONOUS = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)


def reads_of(act: Callable[[], Any]) -> int:
    """How often this thread reads a variable of that shape, or builds a function that does."""
    reads = 0

    def note(kind: str, inputs: Any, attributes: Any, outputs: Any, *_: Any, **__: Any) -> None:
        nonlocal reads
        del inputs, attributes
        reads += kind == "ReadVariableOp" and outputs[0].shape in (SHAPE, None)

    op_callbacks.add_op_callback(note)
    try:
        act()
    finally:
        op_callbacks.remove_op_callback(note)
    return reads


@pytest.mark.parametrize(
    "params", ["stock", {"type": "none"}, None, tf_gc.Quantized(bypass_size=0)]
)
def test_a_step_reads_a_table_as_often_as_stock_does(params: Any) -> None:
    if params == "stock":
        strategy = tf.distribute.MirroredStrategy(cpus(2))
    else:
        strategy = tf_gc.CompressedMirroredStrategy(cpus(2), params)
    with strategy.scope():
        table = tf.Variable(tf.zeros(SHAPE), name="table")
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)

    def replica_step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [1, 2, 3]))
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])

    # TensorFlow reads a distributed table in each replica, to look up rows of it.
    assert reads_of(lambda: strategy.run(replica_step)) == 2
    assert reads_of(lambda: tf.function(strategy.run)(replica_step)) == 2


def test_a_save_reads_each_residual_once_and_a_restore_none(tmp_path: Path) -> None:
    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), tf_gc.Quantized(bypass_size=0))
    with strategy.scope():
        variable = tf.Variable(tf.zeros(SHAPE))
    checkpoint = tf.train.Checkpoint(variable=variable, compression=strategy.compression_state)
    reducer(strategy, [variable])([np.ones((2, *SHAPE), np.float32)])
    path = tmp_path / "checkpoint"
    assert reads_of(lambda: checkpoint.write(path)) == 1 + 2
    # The first asynchronous save makes copies, the second a function that copies variables again.
    for reads in (1 + 2, 1 + 2, 2):
        assert reads_of(lambda: checkpoint.write(path, ASYNCHRONOUS)) == reads
        checkpoint.sync()
    assert reads_of(lambda: checkpoint.read(path).assert_consumed()) == 0
