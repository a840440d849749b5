"""Keras' fit, evaluate and predict, and custom loops, over real worker processes."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
import pytest

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
OF_MANY_WORKERS = ("arrays", "validation", "steps_per_execution", "evaluate", "predict_81")


@functools.cache
def fits_of_one_process(rows: int, only: tuple[str, ...] = ()) -> dict[str, Any]:
    (results,) = cluster.values("fit_scenarios:fits", "single", rows, only, workers=1, limit=240)
    return results


# The rows leave 10 or 16 for the last batch. Rows that do not divide among workers weigh more in
# the smaller parts, as under every strategy of TensorFlow, and training differs.
@pytest.mark.parametrize(
    ("workers", "rows", "only"),
    [(2, 90, ()), (4, 96, OF_MANY_WORKERS)],
    ids=["2 workers", "4 workers"],
)
def test_workers_train_as_one_process_does(workers: int, rows: int, only: tuple[str, ...]) -> None:
    alone = fits_of_one_process(rows, only)
    together = cluster.values("fit_scenarios:fits", "none", rows, only, workers=workers, limit=240)
    for other in together[1:]:
        assert_same(together[0], other, rtol=0, atol=0)
    assert_same(together[0], alone, rtol=1e-4, atol=1e-5)
    assert_same(together[0]["validation"], together[0]["steps_per_execution"], rtol=0, atol=0)
    losses = together[0]["arrays"]["history"]["loss"]
    assert losses[-1] < losses[0]


def test_compressed_workers_hold_the_same_weights() -> None:
    ways = ("arrays", "both", "predict")
    first, second = cluster.values("fit_scenarios:fits", "auto", 90, ways, workers=2)
    assert_same(first, second, rtol=0, atol=0)
    alone = fits_of_one_process(90)
    assert_same(first["predict"], alone["predict"], rtol=1e-4, atol=1e-5)
    assert not np.array_equal(first["arrays"]["weights"][0], alone["arrays"]["weights"][0])


@pytest.mark.parametrize("name", ["none", "auto"])
def test_workers_may_have_datasets_of_different_sizes(name: str) -> None:
    results = cluster.values("fit_scenarios:sizes_that_differ", name, workers=2)
    assert_same(results[0], results[1], rtol=0, atol=0)
    assert_same(results[0]["known"], results[0]["unknown"], rtol=0, atol=0)
    losses = results[0]["known"]["history"]["loss"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("by_hand", [False, True], ids=["optimizer", "by hand"])
def test_without_compression_weights_are_the_stock_strategys_bits(by_hand: bool) -> None:
    ours = cluster.values("fit_scenarios:custom_loop", "none", by_hand, workers=2)
    stock = cluster.values("fit_scenarios:custom_loop", "stock", by_hand, workers=2)
    for weights in (*ours, *stock):
        assert_same(weights, ours[0], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("workers", "devices", "chief"), [(1, 2, False), (2, 2, False), (2, 1, True)]
)
def test_clusters_of_every_shape_train(workers: int, devices: int, chief: bool) -> None:
    configs = cluster.tf_configs(workers, chief)
    results = cluster.values(
        "fit_scenarios:custom_loop", "auto", False, configs=configs, devices=devices
    )
    for weights in results:
        assert_same(weights, results[0], rtol=0, atol=0)
        assert all(np.isfinite(array).all() for array in weights)


def test_without_a_cluster_the_strategy_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert "TF_CONFIG" not in os.environ
    (weights,) = cluster.values("fit_scenarios:custom_loop", "auto", False, configs=["{}"])
    assert all(np.isfinite(array).all() for array in weights)
