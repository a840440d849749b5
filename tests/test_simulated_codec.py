"""The codec that benchmarks/quality.py simulates sends what the default does, with its levels."""

import sys
from pathlib import Path

import numpy as np
import pytest

import tf_gc
from tests.strategies.helpers import cpus, reducer, variables_of
from tf_gc.params import CompressionParams

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import simulated_codec

REPLICAS, SHAPE = 2, (40, 77)


def sums(params: CompressionParams) -> list[np.ndarray]:
    """Sums of three steps, in which the replicas have other gradients."""
    strategy = tf_gc.CompressedMirroredStrategy(cpus(REPLICAS), params)
    random = np.random.default_rng(1)
    run = reducer(strategy, variables_of(strategy, SHAPE))
    steps = random.normal(size=(3, REPLICAS, *SHAPE)).astype(np.float32)
    return [run([gradients])[0][0] for gradients in steps]


@pytest.mark.parametrize("plan", ["all_gather", "scatter_gather"])
def test_with_the_levels_of_the_default_it_sends_what_that_sends(plan: str) -> None:
    simulated_codec.entropy().reset()  # makes its variables, outside of any strategy
    simulated = simulated_codec.Simulated(levels=(5 / 32, 1 / 2, 1.0), plan=plan, warm_up=False)
    expected = sums(tf_gc.Quantized(plan=plan, sum_bits=3, warm_up=False))
    for result, native in zip(sums(simulated), expected, strict=True):
        np.testing.assert_allclose(result, native, rtol=0, atol=1e-5)
    bits = simulated_codec.entropy().mean()
    assert 2 < bits < 3.125
