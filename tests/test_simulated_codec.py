"""The codec that benchmarks/quality.py simulates sends what the default does, with its levels."""

import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tf_gc.params import CompressionParams

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import simulated_codec

REPLICAS, SHAPE = 2, (40, 77)


def sums(params: CompressionParams) -> list[np.ndarray]:
    """Sums of three steps, in which the replicas have other gradients."""
    strategy = tf_gc.CompressedMirroredStrategy([f"CPU:{i}" for i in range(REPLICAS)], params)
    random = np.random.default_rng(1)
    gradients = tf.constant(random.normal(size=(3, REPLICAS, *SHAPE)).astype(np.float32))
    with strategy.scope():
        variable = tf.Variable(tf.zeros(SHAPE))
        optimizer = tf.keras.optimizers.SGD(1.0)
        optimizer.build([variable])

    def replica_step(step: tf.Tensor) -> None:
        rank = tf.distribute.get_replica_context().replica_id_in_sync_group
        optimizer.apply_gradients([(gradients[step, rank], variable)])

    train = tf.function(lambda step: strategy.run(replica_step, (step,)))
    results = []
    for step in range(3):
        train(tf.constant(step))
        results.append(variable.numpy())
    return results


@pytest.mark.parametrize("plan", ["all_gather", "scatter_gather"])
def test_with_the_levels_of_the_default_it_sends_what_that_sends(plan: str) -> None:
    simulated_codec.entropy().reset()  # makes its variables, outside of any strategy
    simulated = simulated_codec.Simulated(levels=(5 / 32, 1 / 2, 1.0), plan=plan, warm_up=False)
    expected = sums(tf_gc.Quantized(plan=plan, sum_bits=3, warm_up=False))
    for result, native in zip(sums(simulated), expected, strict=True):
        np.testing.assert_allclose(result, native, rtol=0, atol=1e-5)
    bits = simulated_codec.entropy().mean()
    assert 2 < bits < 3.125
