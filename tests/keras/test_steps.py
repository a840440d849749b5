"""Steps that TensorFlow builds inside control flow."""

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.bits import assert_same_bits
from tests.cases import cases
from tests.keras.compressed import NONE, assert_replicas_agree, compressed_strategy
from tests.keras.stock import BATCH, assert_same_run, data, fit, normalized_mlp
from tf_gc.params import Auto, CompressionParams, Quantized, TwoBit
from tf_gc.params.composed import COMPRESSED
from tf_gc.steps.trial import STEPS

pytestmark = pytest.mark.optimized_graphs

# The biases are bypassed, the kernels are compressed.
MIXED = TwoBit(bypass_size=20)


@cases("params", MIXED, NONE)  # the first with more kinds of collectives
def test_several_steps_in_one_execution_are_the_same_steps(params: CompressionParams) -> None:
    """Five of them, where an epoch has twelve; also where the warm-up ends."""
    alone, strategy = (compressed_strategy(2, params) for _ in range(2))
    train = functools.partial(fit, build=lambda: normalized_mlp(True), training_data=data(192))
    single, several = train(alone), train(strategy, steps_per_execution=5)
    assert_same_run(several, single)
    assert_replicas_agree(strategy, several.model.trainable_variables)
    steps = [each.compression_state.warm_up_steps for each in (alone, strategy)]
    assert steps == steps[:1] * 2
    assert (10 <= steps[0] < 24) == (params is MIXED)


def test_a_trial_inside_of_loops_is_that_of_single_steps() -> None:
    params = Auto(Quantized(warm_up=False, bypass_size=0), COMPRESSED)
    alone, strategy = (compressed_strategy(2, params) for _ in range(2))
    train = functools.partial(fit, epochs=1, training_data=data(BATCH * (STEPS + 12)))
    assert_same_run(train(strategy, steps_per_execution=6), train(alone))
    for trial in (each.report().trial for each in (alone, strategy)):
        assert trial.chosen == trial.current == COMPRESSED


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
