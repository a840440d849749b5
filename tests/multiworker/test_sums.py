"""Sums of gradients over real worker processes."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import cases, matrix
from tests.multiworker import cluster

pytestmark = pytest.mark.multiworker

GOLDEN = Path(__file__).parents[1] / "golden" / "mxnet_1_9_1_two_bit.npz"


@cases(
    "case, workers, devices, plans",
    ("ramp_4x4", 2, 2, ["all_gather", "scatter_gather"]),
    ("normal_100x100", 2, 1, ["auto", "all_gather", "scatter_gather", "hierarchical"]),
    ("uniform_2x3", 4, 1, ["auto", "all_gather"]),
    ("normal_37", 1, 2, ["auto"]),
)
def test_all_workers_get_the_sums_of_mxnet(
    case: str, workers: int, devices: int, plans: list[str]
) -> None:
    with np.load(GOLDEN) as golden:
        gradients, expected = golden[f"{case}__grads"], golden[f"{case}__sums"]
    params = [{"type": "2bit", "threshold": 0.5, "plan": plan} for plan in plans]
    for outcomes in cluster.values(
        "scenarios:for_each", "gradient_sums", params, gradients, workers=workers, devices=devices
    ):
        for sums in outcomes:
            np.testing.assert_array_equal(sums, expected)


@cases(
    "workers, devices, plans, chosen",
    (
        *(3, 1, ["auto", "hierarchical", "scatter_gather"]),
        ["scatter_gather", "all_gather", *["hierarchical"] * 2, *["scatter_gather"] * 2],
    ),
    (2, 2, ["auto", "scatter_gather"], [*["hierarchical"] * 2, *["scatter_gather"] * 2]),
    (3, 2, ["auto"], ["hierarchical"] * 2),
)
def test_sent_plus_residuals_is_the_sum_of_the_gradients(
    workers: int, devices: int, plans: list[str], chosen: list[str]
) -> None:
    params = [
        {"type": "2bit", "threshold": threshold, "warm_up": False, "bypass_size": 0, "plan": plan}
        for plan in plans
        for threshold in ("auto", 0.01)
    ]
    of_workers = cluster.values(
        "scenarios:for_each", "ledger", params, workers=workers, devices=devices
    )
    for outcomes in of_workers:
        assert [outcome["plan"] for outcome in outcomes] == chosen
        for outcome, first in zip(outcomes, of_workers[0], strict=True):
            for sent, residual, given in zip(
                outcome["sent"], outcome["residuals"], outcome["given"], strict=True
            ):
                np.testing.assert_allclose(sent + residual, given, rtol=1e-5, atol=3e-5)
            for mine, theirs in zip(outcome["last_sums"], first["last_sums"], strict=True):
                np.testing.assert_array_equal(mine, theirs)


@matrix
def test_casts_are_rounded_once_for_each_message() -> None:
    plans = ["all_gather", "scatter_gather", "hierarchical"]
    params = [
        {"type": dtype, "bypass_size": 0, "plan": plan}
        for dtype in ("bfloat16", "float16")
        for plan in plans
    ]
    steps = np.random.default_rng(2).normal(size=(2, 4, 37, 41)).astype("f")

    def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
        return values.astype(tf.as_dtype(dtype).as_numpy_dtype).astype("f")

    def expected(step: np.ndarray, dtype: str, plan: str) -> np.ndarray:
        if plan == "hierarchical":
            return rounded(step[0] + step[1], dtype) + rounded(step[2] + step[3], dtype)
        first, second, third, fourth = rounded(step, dtype)
        total = first + second + third + fourth
        return rounded(total, dtype) if plan == "scatter_gather" else total

    for outcomes in cluster.values(
        "scenarios:for_each", "gradient_sums", params, steps, workers=2, devices=2
    ):
        for of_params, sums in zip(params, outcomes, strict=True):
            for step, total in zip(steps, sums, strict=True):
                wanted = expected(step, str(of_params["type"]), str(of_params["plan"]))
                np.testing.assert_array_equal(total, np.broadcast_to(wanted, total.shape))


@cases("workers, devices", (2, 2), (3, 1))
def test_workers_end_a_warm_up_in_the_same_step(workers: int, devices: int) -> None:
    random = np.random.default_rng(1)
    scales = [1.0, 2.0, 3.0] + [1.0] * 22
    steps = np.stack(
        [random.normal(scale=s, size=(workers * devices, 50, 50)).astype("f") for s in scales]
    )
    params = [{"type": "none"}, {"type": "2bit"}]
    of_workers = cluster.values(
        "scenarios:for_each", "gradient_sums", params, steps, workers=workers, devices=devices
    )
    for dense, warm in of_workers:
        same = [np.array_equal(a, b) for a, b in zip(dense, warm, strict=True)]
        assert 10 < sum(same) < 20
        assert all(same[: sum(same)])
        for mine, theirs in zip(warm, of_workers[0][1], strict=True):
            np.testing.assert_array_equal(mine, theirs)


@matrix
def test_groups_that_share_a_gpu_run_in_one_order() -> None:
    params = {"type": "2bit", "warm_up": False, "bypass_size": 0, "plan": "hierarchical"}
    of_workers = cluster.values("scenarios:ledger_in_one_order", params, workers=2, devices=2)
    for outcome, groups in of_workers:
        # All replicas, the peers of this one and, for the first device, the hosts.
        assert groups == [3, 2]
        for sent, residual, given in zip(
            outcome["sent"], outcome["residuals"], outcome["given"], strict=True
        ):
            np.testing.assert_allclose(sent + residual, given, rtol=1e-5, atol=3e-5)


@matrix
def test_other_codecs_send_what_was_given_or_keep_it() -> None:
    codecs: list[dict[str, Any]] = [
        {"type": "1bit"},
        {"type": "1bit", "threshold": 0.0},
        {"type": "quantized"},
        {"type": "quantized", "bits": 4},
    ]
    every_tensor = {"warm_up": False, "bypass_size": 0, "plan": "scatter_gather"}
    params = [codec | every_tensor for codec in codecs]
    of_workers = cluster.values("scenarios:for_each", "ledger", params, workers=2)
    for outcomes in of_workers:
        for outcome, first in zip(outcomes, of_workers[0], strict=True):
            for sent, residual, given in zip(
                outcome["sent"], outcome["residuals"], outcome["given"], strict=True
            ):
                np.testing.assert_allclose(sent + residual, given, rtol=1e-5, atol=3e-5)
            for mine, theirs in zip(outcome["last_sums"], first["last_sums"], strict=True):
                np.testing.assert_array_equal(mine, theirs)


@cases(
    "thresholds, bytes_per_pack, different",
    ((0.5, 0.25), (0, 0), "threshold"),
    ((0.5, 0.5), (0, 2000), "bytes_per_pack"),
)
def test_workers_that_differ_all_say_so(
    thresholds: tuple[float, float], bytes_per_pack: tuple[int, int], different: str
) -> None:
    params = [{"type": "2bit", "threshold": threshold} for threshold in thresholds]
    of_workers = list(zip(params, bytes_per_pack, strict=True))
    errors = cluster.values("scenarios:construct", of_workers)
    assert errors[0] == errors[1]
    values = {"threshold": thresholds, "bytes_per_pack": bytes_per_pack}[different]
    for worker, value in enumerate(values):
        assert re.search(rf"worker {worker}: .*{different}={value}\b", errors[0])


@matrix
def test_a_worker_makes_residuals_without_the_others() -> None:
    # They are zeros everywhere. To broadcast them would send as much as the model itself.
    of_workers = cluster.values("scenarios:state_of_one_worker", 1, devices=2)
    assert of_workers == [0, 3]


@matrix
def test_eager_steps_build_their_collectives_once() -> None:
    assert cluster.values("scenarios:traces_of_eager_steps", 4, workers=2, devices=2) == [0, 0]


@cases("workers, devices", (2, 1), (2, 2))
def test_what_two_losses_left_is_kept_apart(tmp_path: Path, workers: int, devices: int) -> None:
    replicas = workers * devices
    expected = {"trunk of actor": 0.1 * replicas, "trunk of critic": 0.25 * replicas}
    for outcome in cluster.values(
        "scenarios:two_streams", str(tmp_path), workers=workers, devices=devices
    ):
        for found in outcome.values():
            assert found.keys() == expected.keys()
            for name, value in expected.items():
                np.testing.assert_allclose(found[name], np.full(5, value), rtol=1e-6)
