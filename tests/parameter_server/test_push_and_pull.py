"""Pushing to and pulling from parameter servers, in clusters of one worker and of two."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.multiworker import cluster
from tests.parameter_server import pull_scenarios, push_scenarios, read_scenarios
from tests.strategies.kinds import EXAMPLES, REFUSED_BY_SERVERS

pytestmark = pytest.mark.multiworker

partitioners = tf.distribute.experimental.partitioners
Results = dict[str, Any]

GOLDEN = Path(__file__).parents[1] / "golden" / "mxnet_1_9_1_two_bit.npz"
CASES = ("normal_37", "normal_100x100")
PULLS = ("full", "bfloat16", "delta")
ALL = {"type": "quantized", "sparse": True, "warm_up": False}
LEDGERS = [
    ALL,
    {**ALL, "wire": "compact"},
    {"type": "quantized", "sparse": True},  # with a warm-up
    {"type": "2bit", "threshold": 0.5},
    {"type": "1bit", "threshold": 0.0},
    {"type": "quantized", "bypass_size": 4001},  # compresses nothing
]

SHARDED = {
    "whole": None,
    "two": partitioners.FixedShardsPartitioner(2),
    "three": partitioners.FixedShardsPartitioner(3),
    "large": partitioners.MinSizePartitioner(min_shard_bytes=20_000, max_shards=3),
    "small": partitioners.MaxSizePartitioner(max_shard_bytes=20_000),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="module")
def two(folder: str) -> Results:
    with np.load(GOLDEN) as golden:
        pushed = {n: (golden[f"{n}__grads"], float(golden[f"{n}__threshold"])) for n in CASES}
    calls = {
        **{f"ledger {i}": (push_scenarios.ledger, LEDGERS[i], 2, 6) for i in range(len(LEDGERS))},
        **{name: (push_scenarios.mxnet, *arguments) for name, arguments in pushed.items()},
        "keras": (push_scenarios.keras_models, 2, 60),
        "shards": (push_scenarios.shards, 120),
        "saved": (push_scenarios.save, folder, 2),
        "restored": (push_scenarios.restore, folder, 2),
    }
    (results,) = cluster.values(cluster.each, calls, workers=1)
    return results


@pytest.fixture(scope="module")
def one(folder: str, two: Results) -> Results:
    calls = {
        "each kind": (push_scenarios.each_kind,),
        "train alike": (push_scenarios.train_alike, 8),
        "streams": (push_scenarios.streams,),
        **{f"placed {name}": (push_scenarios.placement, each) for name, each in SHARDED.items()},
        "pull bfloat16": (pull_scenarios.pulls, "bfloat16", 3),
        "pull delta": (pull_scenarios.pulls, "delta", 8),
        **{f"crossings {pull}": (pull_scenarios.crossings, pull) for pull in PULLS},
        "recurrent full": (pull_scenarios.recurrent, "full"),
        "recurrent delta": (pull_scenarios.recurrent, "delta"),
        "two traces": (pull_scenarios.two_traces,),
        "functions": (read_scenarios.results,),
        "warm-up": (push_scenarios.warm_up, 40),
        "refusals": (push_scenarios.refusals,),
        "restored": (push_scenarios.restore, folder, 1),
    }
    (results,) = cluster.values(cluster.each, calls, workers=1)
    return {**results, "saved": two["saved"]}


def test_what_arrives_plus_residuals_is_what_was_pushed(two: Results) -> None:
    outcomes = [two[f"ledger {i}"] for i in range(len(LEDGERS))]
    for outcome in outcomes:
        parts = (outcome[key] for key in ("arrived", "left", "given"))
        for arrived, left, given in zip(*parts, strict=True):
            total = arrived if left is None else arrived + left
            np.testing.assert_allclose(total, given, rtol=1e-5, atol=3e-5)
    assert "a scale for each row), push, rows: v1" in outcomes[0]["schedule"]
    assert "push, compact: v0" in outcomes[1]["schedule"]
    # The coordinator is alone, as a program is on one host.
    assert {(outcome["chief"], outcome["written"]) for outcome in outcomes} == {
        (True, "checkpoints")
    }
    assert "1 have fewer elements than bypass_size=2048, " in outcomes[2]["schedule"]
    assert "1 are of variables that have another gradient in the step" in outcomes[2]["schedule"]
    assert "1 are sparse (tf.IndexedSlices), which a fixed" in outcomes[3]["schedule"]
    assert [outcome["warm-up"] for outcome in outcomes] == [0, 0, 6, 0, 0, 0]
    (said,) = [line for line in outcomes[5]["log"] if "nothing is compressed" in line]
    assert "of its 4 gradients 2 have fewer elements than bypass_size=4001" in said


def test_pushes_are_those_of_mxnet(two: Results) -> None:
    with np.load(GOLDEN) as golden:
        for name in CASES:
            sums = np.zeros_like(golden[f"{name}__sums"])
            for worker in range(two[name].shape[1]):
                sums += two[name][:, worker]
            np.testing.assert_array_equal(sums, golden[f"{name}__sums"])


def test_without_compression_it_is_the_stock_strategy(one: Results) -> None:
    stock, ours = one["train alike"]
    assert ours == stock


def test_keras_models_train(two: Results) -> None:
    for outcome in two["keras"]:
        assert outcome["iterations"] == 60  # Keras would lose some of two workers
        assert np.mean(outcome["losses"][-5:]) < 0.2 * np.mean(outcome["losses"][:2])
        # A table, and two kernels that are smaller together: each server has a part.
        table, *kernels = outcome["servers"]
        assert table not in kernels
        # Workers look up rows, and do not get the table.
        assert "ResourceGather" in outcome["ops"]
        assert "a scale for each row), push, rows: " in outcome["schedule"]


def test_bfloat16_pulls_are_rounded(one: Results) -> None:
    outcome = one["pull bfloat16"]
    for value, pulled in [*outcome["moving"], *outcome["finite"], outcome["infinite"]]:
        np.testing.assert_array_equal(pulled, value.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_delta_pulls_follow_the_variable(one: Results) -> None:
    outcome = one["pull delta"]
    value, pulled = outcome["moving"][0]
    np.testing.assert_array_equal(pulled, value)
    for value, pulled in outcome["moving"]:
        assert np.abs(value - pulled).max() < 0.25  # changes are 0.1 of a standard normal number
    value, pulled = outcome["resting"][-1]
    assert np.abs(value - pulled).max() < 1e-4
    value, pulled = outcome["infinite"]
    assert not np.isfinite(pulled[:, 7]).any()
    assert np.isfinite(np.delete(pulled, 7, axis=1)).all()
    value, pulled = outcome["finite"][-1]
    assert np.abs(value - pulled).max() < 1e-4
    assert outcome["has"].tobytes() == outcome["believed"].tobytes()
    for whole in ("restarted", "lost", "infinite at first"):
        value, pulled = outcome[whole]
        np.testing.assert_array_equal(pulled, value, whole)
    value, pulled = outcome["finite again"][-1]
    assert np.abs(value - pulled).max() < 1e-4
    # Two reads in a step are one pull.
    assert outcome["ops"].count("TfGc>Encode") == 1


@pytest.mark.parametrize("pull", PULLS)
def test_no_step_sends_what_is_compressed_in_full_precision(one: Results, pull: str) -> None:
    outcome = one[f"crossings {pull}"]
    full = 60 * 50 * 4
    # Differences and whole pulls have shapes that only the step knows.
    wanted = {"full": [full] * 2, "bfloat16": [full // 2] * 2, "delta": []}[pull]
    # A message of codes, and two pulls, for something is written in between.
    assert [size for size in outcome["bytes"] if size > full // 4] == wanted
    assert any(full // 12 < size < full // 9 for size in outcome["bytes"])
    pushed, pulled, said = outcome["traffic"]
    assert pushed.stock_bytes == full + 7 * 4
    assert full // 12 < pushed.bytes < full // 9
    assert pulled.stock_bytes == 2 * full + 7 * 4
    # Twice the matrix, and the bias, which is too small to be rounded.
    wanted = {"full": 2 * full, "bfloat16": full, "delta": 2 * full / 9.5}[pull] + 7 * 4
    assert pulled.bytes == pytest.approx(wanted, rel=0.1 if pull == "delta" else 0)
    assert f"pushes {pushed.bytes:,} bytes a step instead of 12,028" in said
    assert outcome["after writing"] < 1  # what is read after that is pulled anew


def test_the_first_pushes_of_a_worker_are_exact(one: Results) -> None:
    errors = one["warm-up"]
    length = errors.index(next(error for error in errors if error > 0))
    assert 10 <= length < 30
    assert all(error > 0 for error in errors[length:])


@pytest.mark.parametrize("name", SHARDED)
def test_servers_get_equally_many_shards_of_a_variable_and_bytes(one: Results, name: str) -> None:
    placed = one[f"placed {name}"]
    for shards in placed:
        on_each = [sum(server == task for server, _ in shards) for task in range(2)]
        assert max(on_each) - min(on_each) <= 1
    assert max(map(len, placed)) == {"whole": 1, "two": 2, "three": 3, "large": 3, "small": 4}[name]
    everything = [shard for shards in placed for shard in shards]
    totals = [sum(size for server, size in everything if server == task) for task in range(2)]
    assert abs(totals[0] - totals[1]) <= max(size for _, size in everything)


def test_shards_are_pushed_to_their_servers(two: Results) -> None:
    outcome = two["shards"]
    assert len(set(outcome["devices"])) == 2
    assert outcome["buckets"] == [("matrix/part_0",), ("matrix/part_1",)]
    assert np.mean(outcome["losses"][-10:]) < 0.01 * outcome["losses"][0]


@pytest.mark.parametrize("pull", PULLS)
def test_any_function_has_the_values_and_derivatives_of_stock(one: Results, pull: str) -> None:
    for program, values in one["functions"]["stock"].items():
        for mine, value in zip(one["functions"][pull][program], values, strict=True):
            np.testing.assert_array_equal(mine, value, program)


@pytest.mark.parametrize("pull", ["full", "delta"])
def test_what_a_loop_reads_is_pulled_once_before_it(one: Results, pull: str) -> None:
    outcome = one[f"recurrent {pull}"]
    assert outcome["loops"] > 0
    assert not outcome["in loops"]
    for mine, wanted in zip(outcome["on worker"], outcome["here"], strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)


def test_a_loop_is_built_alike_beside_another_thread(one: Results) -> None:
    assert not one["two traces"]


def test_what_is_pushed_is_said_of_all_streams(one: Results) -> None:
    assert one["streams"]["variables"] == [("v40",), ("v50",)]
    pushed = one["streams"]["pushed"]
    assert pushed.stock_bytes == 4 * 60 * (40 + 50)
    assert pushed.stock_bytes / 11 < pushed.bytes < pushed.stock_bytes / 9


@pytest.mark.parametrize("after", [1, 2])
def test_checkpoints_hold_what_was_not_sent(request: pytest.FixtureRequest, after: int) -> None:
    results = request.getfixturevalue({1: "one", 2: "two"}[after])
    parts, pushed, log, again = results["restored"]
    assert np.abs(results["saved"]).max() > 0.1
    assert len(parts) == after
    assert log == ["tf_gc: residuals of 1 variables restored"]
    np.testing.assert_allclose(np.sum(parts, axis=0) + pushed, results["saved"], atol=1e-6)
    assert np.abs(np.subtract(parts[0], parts[-1])).max() < 1e-6  # equal parts
    for total in again:
        np.testing.assert_allclose(total, results["saved"], atol=1e-6)


def test_each_kind_of_params_works_with_each_pull_or_is_refused(one: Results) -> None:
    lost = one["each kind"]
    for kind, error in REFUSED_BY_SERVERS.items():
        assert lost.pop(kind).startswith(error)
    assert lost.keys() == {f"{k}, {p}" for k in {*EXAMPLES} - {*REFUSED_BY_SERVERS} for p in PULLS}
    assert max(lost.values()) < 0.05, lost  # a cast keeps no residual


def test_what_is_of_no_use_is_refused(one: Results) -> None:
    assert "refusals" in one
