"""Steps that TensorFlow builds inside control flow, and what the stock strategy cannot do."""

import functools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.cases import cases
from tests.keras.compressed import AUTO, NONE, assert_replicas_agree, compressed_strategy
from tests.keras.stock import (
    assert_same_bits,
    assert_same_run,
    compiled,
    data,
    fit,
    normalized_mlp,
)
from tf_gc.params import CompressionParams, TwoBit

pytestmark = pytest.mark.optimized_graphs

# The biases are bypassed, the kernels are compressed.
MIXED = TwoBit(warm_up=False, bypass_size=20)


@cases("params", MIXED, NONE)  # the first with more kinds of collectives
def test_several_steps_in_one_execution_are_the_same_steps(params: CompressionParams) -> None:
    """Three of them, where an epoch has four."""
    normalized = functools.partial(normalized_mlp, True)
    single = fit(compressed_strategy(2, params), normalized)
    strategy = compressed_strategy(2, params)
    several = fit(strategy, normalized, steps_per_execution=3)
    assert_same_run(several, single)
    assert_replicas_agree(strategy, several.model.trainable_variables)


@cases("order", "step loop step", "loop step", "loop longer", "branch step")
def test_a_step_runs_by_itself_in_a_loop_and_in_a_branch(order: str) -> None:
    """In any order of tracing: a traced step serves all its callers."""
    strategy = compressed_strategy(2, NONE)

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        def replica_step(x: tf.Tensor) -> Any:
            return tf.distribute.get_replica_context().all_reduce("SUM", 1.0 * x)

        return strategy.experimental_local_results(strategy.run(replica_step, args=(x,)))[0]

    def loop(times: int, x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i, _: i < times, lambda i, v: (i + 1, step(v)), (0, x))[1]

    callers = {
        "step": (step, 2),
        "loop": (tf.function(functools.partial(loop, 2)), 4),
        "longer": (tf.function(functools.partial(loop, 3)), 8),
        "branch": (tf.function(lambda x: tf.cond(x[0] > 0, lambda: step(x), lambda: x)), 2),
    }
    x = np.array([1.0, 3.0], np.float32)
    for name in order.split():
        caller, factor = callers[name]
        assert_same_bits(caller(tf.constant(x)).numpy(), factor * x)


@cases("params", MIXED, AUTO)
def test_accumulating_gradients_is_training_with_larger_batches(params: CompressionParams) -> None:
    """Of the first half of the batches, then of the second: replicas see the same samples."""
    x, y = data()
    # Rows so that two batches of 16, of which each replica gets 8, make one of 32.
    rows = np.arange(64).reshape(2, 2, 2, 8).transpose(0, 2, 1, 3).reshape(-1)
    expected = compiled(compressed_strategy(2, params))
    expected.fit(x, y, batch_size=32, epochs=2, shuffle=False, verbose=0)

    def optimizer() -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)

    strategy = compressed_strategy(2, params)
    model = compiled(strategy, optimizer=optimizer)
    model.fit(x[rows], y[rows], batch_size=16, epochs=2, shuffle=False, verbose=0)
    for a, b in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert_replicas_agree(strategy, model.trainable_variables)
    assert int(model.optimizer.iterations.numpy()) == 4  # updates


@cases("params", AUTO, NONE)
def test_compilation_by_xla_is_refused_with_a_clear_error(params: CompressionParams) -> None:
    with pytest.raises(ValueError, match="jit_compile=False"):
        fit(compressed_strategy(2, params), jit_compile=True)
