"""Workers that die, never come or overflow: an error in bounded time, the same one for all."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import cases, matrix
from tests.multiworker import cluster
from tests.multiworker.failure_scenarios import CASES, Ending

pytestmark = [pytest.mark.multiworker, pytest.mark.waits]

# Seconds, for what else would never end. A dead worker is noticed at once if its connection breaks,
# and else by its heartbeat, after 10 seconds.
LIMIT = 240


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@cases("victim", 0, 1)
def test_the_others_stop_when_a_worker_is_killed_in_a_step(victim: int) -> None:
    # Worker 0 also is the one that coordinates the others.
    step = 4
    outcomes = cluster.run(
        "failure_scenarios:die_while_training", victim, step, may_fail=True, limit=LIMIT
    )
    assert outcomes[victim].returncode == -9
    survivor = outcomes[1 - victim]
    ending = survivor.value
    assert ending.error in ("UnavailableError", "AbortedError"), ending
    assert ending.batches == step - 1
    if victim == 0:
        assert "start all workers again" in ending.afterwards
    assert survivor.returncode == 0, survivor.log


# Before 2.17 TensorFlow has no option that makes the first worker wait for the others.
waits_for_all = pytest.mark.skipif(
    tuple(map(int, tf.__version__.split(".")[:2])) < (2, 17),
    reason="with TensorFlow 2.16 the first worker registers and waits without a limit",
)


@waits_for_all
def test_workers_that_cannot_start_say_why(taken_port: int) -> None:
    seconds = 5.0
    first, _ = cluster.tf_configs(2)
    _, second = cluster.tf_configs(2)
    no_peers = [first, second]  # of two clusters
    taken = json.dumps(
        {
            "cluster": {"worker": [f"127.0.0.1:{taken_port}"]},
            "task": {"type": "worker", "index": 0},
        }
    )
    configs = [*no_peers, taken, first[:-1]]
    endings: list[Ending] = cluster.values(
        "failure_scenarios:construct", seconds, configs=configs, limit=LIMIT
    )
    for index, ending in enumerate(endings[:2]):
        address = json.loads(no_peers[index])["cluster"]["worker"][index]
        assert ending.error == "TimeoutError", ending
        assert f"worker {index} at {address}, waited 5 seconds" in ending.message
    assert endings[2].error == "OSError", endings[2]
    assert f"worker 0 at 127.0.0.1:{taken_port}, cannot listen" in endings[2].message
    assert endings[3].error == "ValueError", endings[3]
    assert "TF_CONFIG is not JSON" in endings[3].message


@matrix
@waits_for_all
def test_workers_that_a_proxy_keeps_apart_say_so(
    taken_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Something listens there that is no proxy.
    for name in ("grpc_proxy", "https_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{taken_port}")
    endings: list[Ending] = cluster.values("failure_scenarios:construct", 5.0, limit=LIMIT)
    assert [ending.error for ending in endings] == ["TimeoutError"] * 2, endings
    for ending in endings:
        assert f"http_proxy=http://127.0.0.1:{taken_port} is set" in ending.message
        assert "set no_proxy=127.0.0.1. " in ending.message
    monkeypatch.setenv("no_proxy", "example.com,127.0.0.1")
    endings = cluster.values("failure_scenarios:construct", 60.0, limit=LIMIT)
    assert [ending.error for ending in endings] == ["", ""], endings


@cases("worker", 1, 0)
def test_all_workers_skip_a_step_that_overflows_on_one(worker: int) -> None:
    step, steps = 3, 6
    results = cluster.values("failure_scenarios:overflow_on_one_worker", worker, step, steps)
    for scales, kernels, taken in results:
        assert scales == [1024.0] * step + [512.0] * (steps - step)
        assert taken == steps - 1
        np.testing.assert_array_equal(kernels[step], kernels[step - 1])
        assert (kernels[step + 1] != kernels[step]).any()
        np.testing.assert_array_equal(kernels, results[0][1])
        assert np.isfinite(kernels).all()


@cases("late", 0, 1)
def test_after_a_collective_has_failed_the_next_strategy_works(late: int) -> None:
    for failed, rows, variables in cluster.values(
        "failure_scenarios:strategies_after_failures", late, limit=LIMIT
    ):
        assert failed == [True] * 4
        assert rows == [2] * 4
        assert variables == [1.0] * 4


def test_workers_that_train_differently_say_what_each_does() -> None:
    for errors in cluster.values("failure_scenarios:programs_that_differ", limit=LIMIT):
        assert list(errors) == list(CASES)
        for case, words in CASES.items():
            header, *said = errors[case].split("\n")
            assert "the workers of this job do different things" in header
            for worker, (line, part) in enumerate(zip(said, words, strict=True)):
                assert line.startswith(f"  worker {worker}: "), errors[case]
                assert part in line, errors[case]


@cases("as_function", True, False)
def test_a_collective_that_fails_says_which_shapes_differ(as_function: bool) -> None:
    # In a process of its own, whose collectives are of no use after that.
    (message,) = cluster.values(
        "failure_scenarios:shapes_that_differ", as_function, workers=1, devices=2
    )
    shapes = r"expected shape \[[\d,]+\] but another member in the group expected shape \[[\d,]+\]"
    assert re.search(f"Shape mismatch in the collective.* {shapes}", message), message
