"""Keras' fit, evaluate and predict, and custom loops, over real worker processes."""

import functools
from typing import Any

import keras
import numpy as np
import pytest

from tests.cases import matrix
from tests.multiworker import cluster, fit_scenarios
from tests.multiworker.fit_scenarios import BAD_STEP, fits, terminate_on_nan

pytestmark = pytest.mark.multiworker

# Ways in which the number of workers shows: parts of batches, and replicas without any.
WAYS = ("arrays", "steps_per_execution", "clipped", "predict", "predict_81")
OTHER_WAYS = ("class_weight", "dataset", "steps_per_epoch", "both", "evaluate", "predict_dataset")
TWO_BIT = {"type": "2bit", "warm_up": False, "bypass_size": 0, "plan": "scatter_gather"}


def assert_close(mine: Any, theirs: Any, **tolerance: float) -> None:
    keras.tree.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, **tolerance), mine, theirs
    )


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
    }
    return cluster.values(cluster.each, calls)


@pytest.fixture(scope="module")
def optimized() -> list[dict[str, Any]]:
    """With graphs that TensorFlow optimizes, and with a chief."""
    calls = {
        "by variable": (fits, "by variable", ("arrays", "predict")),
        "loop": (fit_scenarios.custom_loop, "none"),
    }
    return cluster.values(
        cluster.each, calls, configs=cluster.tf_configs(2, chiefs=1), optimized=True
    )


def test_workers_train_as_one_process_does(two: list[dict[str, Any]]) -> None:
    first, second = (result["fits"] for result in two)
    assert_close(first, second, rtol=0, atol=0)
    assert_close(first, fits_of_one_process(*WAYS), rtol=1e-4, atol=1e-5)
    losses = first["arrays"]["history"]["loss"]
    assert losses[-1] < losses[0]


@matrix
def test_workers_do_all_that_one_process_does() -> None:
    first, second = cluster.values(fits, "none", OTHER_WAYS, optimized=True)
    assert_close(first, second, rtol=0, atol=0)
    assert_close(first, fits_of_one_process(*OTHER_WAYS), rtol=1e-4, atol=1e-5)


def test_compressed_workers_hold_the_same_weights(optimized: list[dict[str, Any]]) -> None:
    first, second = (result["by variable"] for result in optimized)
    assert_close(first, second, rtol=0, atol=0)
    alone = fits_of_one_process(*WAYS)
    assert_close(first["predict"], alone["predict"], rtol=1e-4, atol=1e-5)
    assert not np.array_equal(first["arrays"]["weights"][0], alone["arrays"]["weights"][0])


def test_workers_may_have_datasets_of_different_sizes(two: list[dict[str, Any]]) -> None:
    first, second = (result["sizes"] for result in two)
    assert_close(first, second, rtol=0, atol=0)
    assert_close(first["known"], first["unknown"], rtol=0, atol=0)
    losses = first["known"]["history"]["loss"]
    assert losses[-1] < losses[0]


def test_without_compression_weights_are_the_stock_strategys_bits(
    optimized: list[dict[str, Any]],
) -> None:
    # A job of its own: for the second strategy of a process, TensorFlow starts its collectives
    # anew, and the workers were seen to hang then.
    stock = cluster.values(fit_scenarios.custom_loop, "stock", optimized=True)
    for of_worker in (*(result["loop"] for result in optimized), *stock):
        assert_close(of_worker, stock[0], rtol=0, atol=0)


@pytest.mark.parametrize("codec", ["none", "automatic"])
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
