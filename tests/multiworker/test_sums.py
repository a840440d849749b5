"""Sums of gradients over real worker processes: two with two replicas each, three with one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tf_gc
from tests.multiworker import cluster, sums_scenarios
from tests.multiworker.sums_scenarios import gradient_sums, ledger, rows
from tf_gc.params import KINDS

pytestmark = pytest.mark.multiworker

Results = list[dict[str, Any]]

GOLDEN = Path(__file__).parents[1] / "golden" / "mxnet_1_9_1_two_bit.npz"
OURS = tf_gc.CompressedMultiWorkerMirroredStrategy
AT_ONCE = {"warm_up": False, "bypass_size": 0}
CODES = {"type": "quantized", **AT_ONCE}
FIXED = {"type": "2bit", "threshold": 0.1}
ROWS = {"type": "quantized", "sparse": True}
LOW_RANK = {"type": "low_rank", "rank": 2, "warm_up": False}

SHAPES = [(7, 100), (1,), (129,), (2000,)]
MATRICES = [(128, 192), (3, 3, 32, 160), (400, 140), (7,)]
TABLES = [(500, 200), (300, 16)]  # the first has rows of two parts
# Gradients of 25 steps, of which two are larger. Two replicas each add what is opposite: those of
# the first worker more and more, those of the second less and less.
STEPS = np.arange(25).reshape(25, 1, 1, 1)
SCALES = np.where(STEPS < 3, STEPS + 1, 1)
OPPOSITE = np.where(np.arange(4)[:, None, None] < 2, STEPS, 25 - STEPS)
OPPOSITE = OPPOSITE * np.array([1, -1, 1, -1])[:, None, None]
WARM_UP = np.random.default_rng(1).normal(size=(1, 4, 50, 50)) * SCALES + OPPOSITE
WARM_UP = WARM_UP.astype("f")


def codes(params: dict[str, Any], plan: str = "auto") -> tuple[Any, ...]:
    return {**params, "plan": plan}, SHAPES, sums_scenarios.dense, False, 2000


@pytest.fixture(scope="module")
def two_by_two() -> Results:
    with np.load(GOLDEN) as golden:
        gradients = golden["ramp_4x4__grads"]
    half = {"type": "2bit", "threshold": 0.5}
    calls = {
        "each kind": (sums_scenarios.each_kind,),
        "in a session": (sums_scenarios.keep_promises_in_a_session, OURS),
        "eager": (sums_scenarios.traces_of_eager_steps, 3),
        "mxnet, gathered": (gradient_sums, {**half, "plan": "all_gather"}, gradients),
        "mxnet, scattered": (gradient_sums, {**half, "plan": "scatter_gather"}, gradients),
        "dense": (gradient_sums, {"type": "none"}, WARM_UP),
        "warm-up": (gradient_sums, {"type": "quantized"}, WARM_UP),
        "codes, hierarchical": (sums_scenarios.ledger_in_one_order, *codes(CODES)),
        "codes, scatter_gather": (ledger, *codes(FIXED, "scatter_gather")),
        "rows": (ledger, {**ROWS, "warm_up": False}, TABLES, rows),
        "low rank": (ledger, LOW_RANK, MATRICES),
        "state of one": (sums_scenarios.state_of_one_worker, 1),
    }
    return cluster.values(cluster.each, calls, devices=2)


@pytest.fixture(scope="module")
def three() -> Results:
    calls = {
        "codes, scatter_gather": (ledger, *codes(CODES)),
        "codes, all_gather": (ledger, *codes(FIXED)),
        "codes, hierarchical": (ledger, *codes(FIXED, "hierarchical")),
        "rows": (ledger, ROWS, TABLES, rows),
        "low rank": (ledger, LOW_RANK, MATRICES, sums_scenarios.dense, True),
        "options": (sums_scenarios.options_are_honoured,),
    }
    return cluster.values(cluster.each, calls, workers=3)


@pytest.fixture(params=["two_by_two", "three"])
def results(request: pytest.FixtureRequest) -> Results:
    return request.getfixturevalue(request.param)


def ledgers_of(results: Results, kind: str) -> dict[str, list[dict[str, Any]]]:
    """The ledgers of all workers, by name; all workers got the same bits."""
    ledgers = {name: [of[name] for of in results] for name in results[0] if name.startswith(kind)}
    assert ledgers
    for of_workers in ledgers.values():
        assert {each["digest"] for each in of_workers} == {of_workers[0]["digest"]}
    return ledgers


def assert_nothing_is_lost(one: dict[str, Any], atol: float = 3e-5) -> None:
    for sent, left, given in zip(one["sent"], one["left"], one["given"], strict=True):
        np.testing.assert_allclose(sent + left, given, rtol=1e-5, atol=atol)


def test_all_workers_get_the_sums_of_mxnet(two_by_two: Results) -> None:
    with np.load(GOLDEN) as golden:
        expected = golden["ramp_4x4__sums"]
    for result in two_by_two:
        np.testing.assert_array_equal(result["mxnet, gathered"], expected)
        np.testing.assert_array_equal(result["mxnet, scattered"], expected)


def test_what_is_sent_and_what_is_kept_is_what_was_given(results: Results) -> None:
    for name, (one, *_) in ledgers_of(results, "codes").items():
        assert one["plan"] == name.removeprefix("codes, ")
        assert_nothing_is_lost(one)


def test_rows_are_summed_by_rows_and_the_rest_is_kept(results: Results) -> None:
    one, *_ = ledgers_of(results, "rows")["rows"]
    assert_nothing_is_lost(one)
    assert "a scale for each row), all_gather, rows" in one["schedule"]


def test_factors_send_what_was_given_or_keep_it(results: Results) -> None:
    replicas = 4 if len(results) == 2 else 3
    (one, *_) = ledgers_of(results, "low rank")["low rank"]
    assert_nothing_is_lost(one, atol=1e-4)
    size = 4 * 2 * (128 + 192 + 288 + 160 + 400 + 140)
    vector = 2 * (replicas - 1) * 7 * 4 // replicas
    assert one["bytes"] == 2 * (replicas - 1) * size // replicas + vector


def test_each_kind_sums_on_workers(two_by_two: Results) -> None:
    assert all({*result["each kind"]} == KINDS.keys() for result in two_by_two)


def test_workers_reduce_in_a_session(two_by_two: Results) -> None:
    assert [len(result["in a session"]) for result in two_by_two] == [6, 6]


def test_groups_that_share_a_gpu_run_in_one_order(two_by_two: Results) -> None:
    for result in two_by_two:
        # All replicas, the peers of this one and, for the first device, the hosts.
        assert result["codes, hierarchical"]["groups"] == [3, 2]


def test_the_devices_of_a_host_take_turns_to_send_for_it(two_by_two: Results) -> None:
    for result in two_by_two:
        # The one that sends a bucket keeps what is left of it.
        keeps = result["codes, hierarchical"]["keeps"]
        assert sorted(map(tuple, keeps)) == [(False, True)] * 2 + [(True, False)] * 2


def test_workers_end_a_warm_up_in_the_same_step(two_by_two: Results) -> None:
    for result in two_by_two:
        warm = result["warm-up"]
        same = [np.array_equal(a, b) for a, b in zip(result["dense"], warm, strict=True)]
        assert 10 < sum(same) < 20
        assert all(same[: sum(same)])
        np.testing.assert_array_equal(warm, two_by_two[0]["warm-up"])


def test_a_worker_makes_residuals_without_the_others(two_by_two: Results) -> None:
    # They are zeros everywhere. To broadcast them would send as much as the model itself.
    assert [result["state of one"] for result in two_by_two] == [0, 3]


def test_eager_steps_build_their_collectives_once(two_by_two: Results) -> None:
    for result in two_by_two:
        first, *others = result["eager"]
        assert first > 0
        assert set(others) == {first}


def test_resolver_and_communication_options_are_honoured(three: Results) -> None:
    for result in (each["options"] for each in three):
        assert result["is_given_resolver"]
        assert result["member of"] == [True, False, False]
        assert result["gathers"] == 3  # two tensors fill a bucket of 8,000 bytes
        assert result["implementations"] == {b"ring"}
        assert result["timeouts"] == {0.0}  # TensorFlow's own, which may crash
        assert result["deadlines"] == [20.0] * 3
