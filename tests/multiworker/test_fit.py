"""Keras' fit, evaluate and predict, and custom loops, over real worker processes."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from tests.cases import matrix
from tests.multiworker import cluster, fit_scenarios
from tests.multiworker.fit_scenarios import BAD_STEP, fits, terminate_on_nan

pytestmark = pytest.mark.multiworker

# Ways in which the number of workers shows: parts of batches, and replicas without any.
WAYS = ("arrays", "steps_per_execution", "clipped", "predict", "predict_81")
TWO_BIT = {"type": "2bit", "warm_up": False, "bypass_size": 0, "plan": "scatter_gather"}


def assert_same(mine: Any, theirs: Any, path: str = "", **tolerance: float) -> None:
    """Compares two structures of arrays."""
    if isinstance(mine, dict):
        assert mine.keys() == theirs.keys()
        for key, value in mine.items():
            assert_same(value, theirs[key], f"{path}/{key}", **tolerance)
    elif isinstance(mine, list):
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            assert_same(a, b, f"{path}/{i}", **tolerance)
    else:
        np.testing.assert_allclose(mine, theirs, err_msg=path, **tolerance)


@functools.cache
def fits_of_one_process(*only: str) -> dict[str, Any]:
    (results,) = cluster.values(fits, "single", only, workers=1)
    return results


@pytest.fixture(scope="module")
def two() -> list[dict[str, Any]]:
    calls = {
        "fits": (fits, "none", WAYS),
        "sizes": (fit_scenarios.sizes_that_differ,),
        "overflow": (fit_scenarios.overflow,),
        "nan, none": (terminate_on_nan, {"type": "none"}),
        "nan, automatic": (terminate_on_nan, TWO_BIT),
        "nan, fixed": (terminate_on_nan, {**TWO_BIT, "threshold": 0.01}),
    }
    return cluster.values(cluster.each, calls)


@pytest.fixture(scope="module")
def optimized() -> list[dict[str, Any]]:
    """With graphs that TensorFlow optimizes, and with a chief."""
    calls = {
        "by variable": (fits, "by variable", ("arrays", "predict")),
        "loops": (fit_scenarios.custom_loops, "none"),
    }
    return cluster.values(cluster.each, calls, configs=cluster.tf_configs(2, True), optimized=True)


def test_workers_train_as_one_process_does(two: list[dict[str, Any]]) -> None:
    first, second = (result["fits"] for result in two)
    assert_same(first, second, rtol=0, atol=0)
    assert_same(first, fits_of_one_process(*WAYS), rtol=1e-4, atol=1e-5)
    losses = first["arrays"]["history"]["loss"]
    assert losses[-1] < losses[0]


@matrix
def test_workers_do_all_that_one_process_does() -> None:
    first, second = cluster.values(fits, "none", optimized=True)
    assert_same(first, second, rtol=0, atol=0)
    assert_same(first, fits_of_one_process(), rtol=1e-4, atol=1e-5)
    assert_same(first["validation"], first["steps_per_execution"], rtol=0, atol=0)


def assert_compressed_alike(first: Any, second: Any) -> None:
    assert_same(first, second, rtol=0, atol=0)
    alone = fits_of_one_process(*WAYS)
    assert_same(first["predict"], alone["predict"], rtol=1e-4, atol=1e-5)
    assert not np.array_equal(first["arrays"]["weights"][0], alone["arrays"]["weights"][0])


def test_compressed_workers_hold_the_same_weights(optimized: list[dict[str, Any]]) -> None:
    assert_compressed_alike(*(result["by variable"] for result in optimized))


@matrix
def test_workers_hold_the_same_weights_after_a_trial() -> None:
    assert_compressed_alike(*cluster.values(fits, "trial", WAYS, optimized=True))


def test_workers_may_have_datasets_of_different_sizes(two: list[dict[str, Any]]) -> None:
    first, second = (result["sizes"] for result in two)
    assert_same(first, second, rtol=0, atol=0)
    assert_same(first["known"], first["unknown"], rtol=0, atol=0)
    losses = first["known"]["history"]["loss"]
    assert losses[-1] < losses[0]


def test_without_compression_weights_are_the_stock_strategys_bits(
    optimized: list[dict[str, Any]],
) -> None:
    # A job of its own: for the second strategy of a process, TensorFlow starts its collectives
    # anew, and the workers were seen to hang then.
    stock = cluster.values(fit_scenarios.custom_loops, "stock", optimized=True)
    for of_worker in (*(result["loops"] for result in optimized), *stock):
        assert_same(of_worker, stock[0], rtol=0, atol=0)
        assert not np.array_equal(of_worker["optimizer"][0], of_worker["by hand"][0])


@pytest.mark.parametrize("codec", ["none", "automatic", "fixed"])
def test_a_bad_number_on_one_worker_stops_all_after_the_same_step(
    two: list[dict[str, Any]], codec: str
) -> None:
    for kernels, finite in (result[f"nan, {codec}"] for result in two):
        assert len(kernels) == BAD_STEP + 1
        np.testing.assert_array_equal(kernels, two[0][f"nan, {codec}"][0])
        assert finite


def test_all_workers_skip_a_step_that_overflows_on_one(two: list[dict[str, Any]]) -> None:
    for scales, kernels, taken in (result["overflow"] for result in two):
        steps = len(kernels)
        assert scales == [1024.0] * BAD_STEP + [512.0] * (steps - BAD_STEP)
        assert taken == steps - 1
        np.testing.assert_array_equal(kernels[BAD_STEP], kernels[BAD_STEP - 1])
        assert (kernels[BAD_STEP + 1] != kernels[BAD_STEP]).any()
        np.testing.assert_array_equal(kernels, two[0]["overflow"][1])
        assert np.isfinite(kernels).all()
