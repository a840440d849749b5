"""Clusters that a worker does not even try to join, and its options. Nothing is started here."""

import json
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tf_gc
from tf_gc.cluster.cluster import check_cluster, joining, set_server_options

ADDRESSES = ["10.0.0.1:8888", "10.0.0.2:8888"]
FIRST = {"type": "worker", "index": 0}


def resolver(
    jobs: dict[str, Any], task_type: str | None = "worker", task_id: int | None = 0
) -> tf.distribute.cluster_resolver.ClusterResolver:
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(jobs), task_type=task_type, task_id=task_id
    )


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"cluster": {}},
        {"cluster": {"worker": ADDRESSES}, "task": FIRST},
        {"cluster": {"worker": ADDRESSES}, "task": {"type": "worker", "index": "1"}},
        {"cluster": {"chief": ADDRESSES[:1], "worker": ADDRESSES[1:]}, "task": FIRST},
        {"cluster": {"worker": ["[::1]:8888", "trainer-0.trainer:8888"]}, "task": FIRST},
        {"cluster": {"worker": ADDRESSES}, "task": {"type": "evaluator", "index": 0}},
    ],
)
def test_usable_descriptions_pass(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps(value))
    found = check_cluster(None)
    assert found.cluster_spec().as_dict() == value.get("cluster", {})
    given = resolver({"worker": {0: "a:1", 2: "b:1"}}, "worker", 2)  # with a gap
    assert check_cluster(given) is given


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("", "TF_CONFIG must be JSON .*''"),
        ('{"cluster": ', "TF_CONFIG must be JSON .*column"),
        ("[1]", r"TF_CONFIG must be JSON .*\[1\]"),
        ({"cluster": {"worker": ADDRESSES}, "task": [0]}, r"TF_CONFIG must be .*\[0\]"),
        ({"cluster": ADDRESSES, "task": FIRST}, r"TF_CONFIG must be JSON such as .*, got .*10\.0"),
        ({"cluster": {"worker": "a:1"}, "task": FIRST}, 'a list of addresses.*"worker": "a:1"'),
        ({"Cluster": {"worker": ADDRESSES}, "task": FIRST}, '"task" but no "cluster".*Cluster'),
        ({"cluster": {"worker": ADDRESSES}}, "not which of them .*index None"),
        ({"cluster": {"worker": ADDRESSES}, "task": {"type": "worker"}}, "'worker'.*index None"),
        ({"cluster": {"worker": ADDRESSES}, "task": {"index": 0}}, "type None, task index 0"),
        (
            {"cluster": {}, "task": {"type": "worker", "index": "one"}},
            "invalid literal for .* 'one'",
        ),
        ({"cluster": {"worker": ADDRESSES}, "task": FIRST | {"index": 2}}, "is worker 2, the clus"),
    ],
)
def test_wrong_tf_configs_are_named(
    monkeypatch: pytest.MonkeyPatch, value: Any, named: str
) -> None:
    monkeypatch.setenv("TF_CONFIG", value if isinstance(value, str) else json.dumps(value))
    with pytest.raises(ValueError, match=named):
        check_cluster(None)


@pytest.mark.parametrize(
    ("jobs", "task", "named"),
    [
        ({"worker": ADDRESSES}, ("worker", -1), "is worker -1, the cluster has"),
        ({"worker": ADDRESSES}, ("chief", 0), "is chief 0, the cluster has"),
        ({"worker": {0: "a:1", 2: "b:1"}}, ("worker", 1), "is worker 1, .* worker 0, worker 2"),
        ({"worker": ADDRESSES[:1], "ps": ADDRESSES[1:]}, ("worker", 0), "type 'ps'"),
        ({"trainer": ADDRESSES}, ("trainer", 0), "type 'trainer'"),
        ({"worker": ADDRESSES}, (None, None), "task type None, task index None"),
        ({"worker": ["10.0.0.1", "10.0.0.2:8888"]}, ("worker", 0), "worker 0 .*'10.0.0.1'"),
        ({"worker": ["10.0.0.1:8888", ":8888"]}, ("worker", 0), "worker 1 .*':8888'"),
        ({"worker": ["10.0.0.1:8888", "b:0"]}, ("worker", 0), "'b:0'"),
        ({"worker": ["10.0.0.1:8888", "b:65536"]}, ("worker", 0), "'b:65536'"),
        ({"worker": ["10.0.0.1:8888", "b:grpc"]}, ("worker", 0), "'b:grpc'"),
        ({"worker": ["grpc://a:8888", "b:8888"]}, ("worker", 0), "'grpc://a:8888'"),
        ({"worker": ["a:1", "b:1", "a:1"]}, ("worker", 0), "worker 0 and worker 2 .*'a:1'"),
        ({"chief": ["a:1"], "worker": ["a:1"]}, ("worker", 0), "chief 0 and worker 0 .*'a:1'"),
    ],
)
def test_wrong_clusters_are_named(jobs: Any, task: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named), joining(resolver(jobs, *task), None):
        pytest.fail("joins")


def test_joining_leaves_other_errors_alone() -> None:
    with (
        pytest.raises(tf.errors.UnknownError, match="another"),
        joining(resolver({"worker": ADDRESSES}), None),
    ):
        raise tf.errors.UnknownError(None, None, "another")


def test_after_other_work_the_error_says_to_make_the_strategy_first() -> None:
    tf.zeros(1)
    with pytest.raises(RuntimeError, match="make the strategy first, before any tensor"):
        tf_gc.CompressedMultiWorkerMirroredStrategy(resolver({"worker": ADDRESSES}))


def test_a_strategy_of_a_cluster_is_refused_in_a_graph_and_one_of_a_host_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)

    def make() -> tf.Tensor:
        with pytest.raises(RuntimeError, match=r"not in a tf\.function or a tf\.Graph"):
            tf_gc.CompressedMultiWorkerMirroredStrategy(resolver({"worker": ADDRESSES}))
        tf_gc.CompressedMultiWorkerMirroredStrategy()
        return tf_gc.CompressedMirroredStrategy(["CPU:0"]).run(lambda: tf.constant(1))

    with tf.Graph().as_default():
        make()
    assert tf.function(make, autograph=False)() == 1


def test_a_worker_that_waits_for_long_names_those_that_do_not_answer(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        mine, present, absent = (
            f"127.0.0.1:{port}" for port in (1, server.getsockname()[1], closed.getsockname()[1])
        )
        said = ""
        with joining(resolver({"worker": [mine, present, absent]}), 300, patience=0):
            deadline = time.monotonic() + 120
            while "\n" not in said and time.monotonic() < deadline:
                time.sleep(0.05)
                said += capfd.readouterr().err
    assert said.endswith(
        f"WARNING: tf_gc: worker 0 at {mine} has waited 0 seconds of 300 seconds (timeout_seconds "
        f"of communication_options) for the others: no answer from worker 2 at {absent}\n"
    )


def test_a_worker_that_joins_soon_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    def children() -> str:
        return Path("/proc/self/task", str(threading.get_native_id()), "children").read_text()

    before = children()
    with joining(resolver({"worker": ADDRESSES}), None):
        assert children() != before
    assert children() == before
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("limit", [None, 0, 2.5])
@pytest.mark.parametrize("chunk", [0, 4096, -1])  # -1: one chunk for each message
def test_registration_is_limited_on_request_and_a_chosen_size_of_chunks_stays(
    limit: float | None, chunk: int
) -> None:
    config = tf.compat.v1.ConfigProto()
    config.experimental.recv_buf_max_chunk = chunk
    set_server_options(config, limit)
    assert config.experimental.recv_buf_max_chunk == (chunk or 65536)
    coordination = config.experimental.coordination_config
    assert coordination.cluster_register_timeout_in_ms == 1000 * (limit or 0)
    barrier = "cluster_register_with_barrier"  # which TensorFlow 2.16 does not have
    assert getattr(coordination, barrier, bool(limit)) == bool(limit)


def test_a_workers_server_gets_large_chunks_and_the_limit() -> None:
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=3)
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(None, options, {"type": "none"})
    config = strategy.extended._update_config_proto(tf.compat.v1.ConfigProto())
    assert config.experimental.recv_buf_max_chunk == 65536
    assert config.experimental.coordination_config.cluster_register_timeout_in_ms == 3000


@pytest.mark.parametrize(
    "names", [[], ["HTTP_PROXY"], ["http_proxy"], ["http_proxy", "https_proxy"]]
)
def test_who_waits_in_vain_learns_which_proxy_grpc_asks(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in names:
        monkeypatch.setenv(name, f"http://{name}:3128")
    with (
        pytest.raises(TimeoutError, match=r"waited 2 seconds.* Is each of them") as raised,
        joining(resolver({"worker": ADDRESSES}), 2.0),
    ):
        raise tf.errors.DeadlineExceededError(None, None, "late")
    asked = re.findall("(\\w+)=http://(\\w+):3128 is set: .* unless no_proxy", str(raised.value))
    assert asked == [(name, name) for name in names[-1:] if name != "HTTP_PROXY"]
