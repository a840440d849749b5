"""Keras' fit, evaluate and predict, and custom loops, over real worker processes."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
import pytest

from tests.cases import cases, matrix
from tests.multiworker import cluster

pytestmark = pytest.mark.multiworker


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


# Ways in which the number of workers shows: parts of batches, and replicas without any.
OF_MANY_WORKERS = ("arrays", "steps_per_execution", "predict_81")
# The last batch has 12: rows that do not divide among workers weigh more in the smaller parts, as
# under every strategy of TensorFlow, and training differs.
ROWS = 92


@functools.cache
def fits_of_one_process(only: tuple[str, ...] = ()) -> dict[str, Any]:
    (results,) = cluster.values("fit_scenarios:fits", "single", ROWS, only, workers=1)
    return results


@cases("workers, only", (2, OF_MANY_WORKERS), (2, ()), (4, OF_MANY_WORKERS))
def test_workers_train_as_one_process_does(workers: int, only: tuple[str, ...]) -> None:
    alone = fits_of_one_process(only)
    together = cluster.values(
        *("fit_scenarios:fits", "none", ROWS, only), workers=workers, optimized=not only
    )
    for other in together[1:]:
        assert_same(together[0], other, rtol=0, atol=0)
    assert together[0].keys() == set(only or alone)
    assert_same(together[0], {way: alone[way] for way in together[0]}, rtol=1e-4, atol=1e-5)
    losses = together[0]["arrays"]["history"]["loss"]
    assert losses[-1] < losses[0]
    if not only:
        assert_same(together[0]["validation"], together[0]["steps_per_execution"], rtol=0, atol=0)


@cases("name", "by variable", "trial")
def test_compressed_workers_hold_the_same_weights(name: str) -> None:
    ways = ("arrays", "predict")
    first, second = cluster.values("fit_scenarios:fits", name, ROWS, ways, optimized=True)
    assert_same(first, second, rtol=0, atol=0)
    alone = fits_of_one_process(ways)
    assert_same(first["predict"], alone["predict"], rtol=1e-4, atol=1e-5)
    assert not np.array_equal(first["arrays"]["weights"][0], alone["arrays"]["weights"][0])


@matrix
def test_workers_clip_the_sum_as_one_process_does() -> None:
    ((alone,),) = cluster.values("fit_scenarios:clips", "single", workers=1)
    first, second = cluster.values("fit_scenarios:clips", "none", True, False)
    assert_same(first[0], second[0], rtol=0, atol=0)
    assert_same(first[0], alone, rtol=1e-4, atol=1e-5)
    for kind, weights in first[1].items():
        gaps = [np.abs(a - b).max() for a, b in zip(weights, alone[kind], strict=True)]
        assert max(gaps) > 1e-4, kind


def test_workers_may_have_datasets_of_different_sizes() -> None:
    results = cluster.values("fit_scenarios:sizes_that_differ", "none", "auto", workers=2)
    assert_same(results[0], results[1], rtol=0, atol=0)
    for of_strategy in results[0]:
        assert_same(of_strategy["known"], of_strategy["unknown"], rtol=0, atol=0)
        losses = of_strategy["known"]["history"]["loss"]
        assert losses[-1] < losses[0]


def test_without_compression_weights_are_the_stock_strategys_bits() -> None:
    # A job each: for the second strategy of a process, TensorFlow starts its collectives anew, and
    # the workers were seen to hang then.
    none = cluster.values("fit_scenarios:custom_loops", "none", optimized=True)
    stock = cluster.values("fit_scenarios:custom_loops", "stock", optimized=True)
    for of_worker in (*none, *stock):
        for way in ("optimizer", "by hand"):
            assert_same(of_worker[way], stock[0][way], rtol=0, atol=0)
        assert not np.array_equal(of_worker["optimizer"][0], of_worker["by hand"][0])


@cases("workers, devices, chief", (2, 1, True), (1, 2, False), (2, 2, False))
def test_clusters_of_every_shape_train(workers: int, devices: int, chief: bool) -> None:
    configs = cluster.tf_configs(workers, chief)
    results = cluster.values("fit_scenarios:custom_loop", "auto", configs=configs, devices=devices)
    for weights in results:
        assert_same(weights, results[0], rtol=0, atol=0)
        assert all(np.isfinite(array).all() for array in weights)


def test_without_a_cluster_the_strategy_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert "TF_CONFIG" not in os.environ
    (weights,) = cluster.values("fit_scenarios:custom_loop", "auto", configs=["{}"])
    assert all(np.isfinite(array).all() for array in weights)
