"""Programs that broke other strategies, run by several workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cases import matrix
from tests.keras.stock import assert_same_bits
from tests.multiworker import cluster

pytestmark = pytest.mark.multiworker

Results = list[dict[str, Any]]


@pytest.fixture(
    scope="module",
    params=[pytest.param(2, id="two replicas each"), pytest.param(1, id="one", marks=matrix)],
)
def devices(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="module")
def results(devices: int) -> Results:
    """What each of two workers found, with the default codec."""
    return cluster.values("program_scenarios:programs", devices=devices, optimized=devices > 1)


@pytest.fixture(scope="module")
def uncompressed() -> Results:
    return cluster.values("program_scenarios:programs_without_compression")


def assert_same(left: Any, right: Any) -> None:
    for a, b in zip(left, right, strict=True):
        assert_same_bits(a, b)


def test_batch_normalization_leaves_one_model_on_all_workers(
    results: Results, devices: int
) -> None:
    first, second = (result["batch_normalization"] for result in results)
    for worker in first, second:
        assert len(worker["replicas"]) == devices
        for replica in worker["replicas"]:
            assert_same(replica, first["weights"])
        assert_same(worker["weights"], first["weights"])
        np.testing.assert_allclose(worker["predicted"], worker["own output"], rtol=1e-5, atol=1e-6)
        assert worker["loss"] == first["loss"]
    assert_same(first["saved"], first["weights"])
    assert second["saved"] is None


@pytest.mark.parametrize("run", [0, 1, 2])
def test_a_model_that_has_ended_on_one_worker_only_is_in_nobodys_way(
    results: Results, run: int
) -> None:
    replicas = [replica for worker in results for replica in worker["ended_models"][run]]
    for replica in replicas:
        assert_same(replica, results[0]["eager_statistics"][0])


def test_a_checkpoint_has_no_garbage(results: Results) -> None:
    first, second = (result["checkpoint"] for result in results)
    assert first == second
    assert len(first) == 1


def test_statistics_of_eager_steps_are_averaged_whatever_their_values(
    results: Results, devices: int
) -> None:
    replicas = [replica for worker in results for replica in worker["eager_statistics"]]
    assert len(replicas) == 2 * devices
    for _, _, mean, variance in replicas:
        # Of zeros in the first replica, ones in the second, and so on.
        np.testing.assert_allclose(mean, np.full(3, 0.5 * np.mean(range(2 * devices))), rtol=1e-6)
        np.testing.assert_allclose(variance, np.full(3, 0.5), rtol=1e-6)


@matrix
def test_without_compression_workers_keep_their_own_statistics(uncompressed: Results) -> None:
    first, second = (result["normalized"] for result in uncompressed)
    assert not all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def assert_executions_are_steps(workers: Results) -> None:
    for worker in workers:
        assert_same(worker["embedding, several steps"], worker["embedding, one step a time"])
        assert_same(worker["embedding, several steps"], workers[0]["embedding, several steps"])


def test_sentences_may_differ_in_length_within_an_execution(results: Results) -> None:
    assert_executions_are_steps(results)


@matrix
def test_they_may_without_compression(uncompressed: Results) -> None:
    assert_executions_are_steps(uncompressed)


def test_local_replicas_apply_a_reduced_gradient_once(results: Results, devices: int) -> None:
    for worker in results:
        summed, apart = worker["reduced_gradient"]
        # The sum of two replicas is applied by both workers, that of four once: the only replica
        # of a worker cannot tell the sum from a gradient of its own, as under the stock strategy.
        np.testing.assert_array_equal(summed, np.full(3, -4.0))
        np.testing.assert_array_equal(apart, np.full((64, 64), -2.0 * devices))
