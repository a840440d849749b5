"""Workers that die, never come or differ: an error in bounded time, the same one for all."""

import json
import os
import re
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.keras.stock import compiled, cross_entropy, data
from tests.multiworker import cluster
from tests.multiworker.cluster import worker_index
from tf_gc import _compat

pytestmark = [pytest.mark.multiworker, pytest.mark.waits]

# Seconds, for what else would never end. A dead worker is noticed at once if its connection breaks,
# and else by its heartbeat, after 10 seconds.
LIMIT = 240


def construct(
    of_workers: Sequence[Any] | None = None,
    timeout_seconds: float | None = None,
    bytes_per_pack: Sequence[int] = (0, 0),
) -> tuple[str, str]:
    """Makes a strategy, with this worker's arguments; returns the error's type and message."""
    index = worker_index()
    options = tf.distribute.experimental.CommunicationOptions(
        timeout_seconds=timeout_seconds, bytes_per_pack=bytes_per_pack[index]
    )
    params = of_workers[index] if of_workers else None
    try:
        tf_gc.CompressedMultiWorkerMirroredStrategy(None, options, params)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def wait_for_the_dead(noticed: Path) -> str:
    """Worker 0 waits in a collective; worker 1 is killed, and worker 2 lives and sends nothing."""
    module = tf_gc.strategies.multi_worker_strategy
    set_options = module.set_server_options

    def without_heartbeats(config: Any, timeout_seconds: float | None) -> None:
        set_options(config, timeout_seconds)
        config.experimental.coordination_config.heartbeat_timeout_in_ms = 10**8

    module.set_server_options = without_heartbeats
    workers = tf_gc.CompressedMultiWorkerMirroredStrategy().workers
    workers.meet("begins")
    noticed.with_suffix(f".{worker_index()}").touch()
    while worker_index() == 1:
        if len([*noticed.parent.iterdir()]) == 3:  # otherwise another one may still meet it
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.1)
    while worker_index() == 2 and not noticed.exists():
        time.sleep(0.1)
    try:
        workers.meet("waits")
    except tf.errors.UnavailableError as error:
        noticed.touch()
        return error.message
    return ""


def test_a_worker_does_not_wait_for_a_dead_one_to_miss_heartbeats(tmp_path: Path) -> None:
    noticed = tmp_path / "noticed"
    outcomes = cluster.run(wait_for_the_dead, noticed, workers=3, may_fail=True, limit=LIMIT)
    assert re.search(r"the worker at 127.0.0.1:\d+ has ended", outcomes[0].value)


def die_while_training(victim: int, step: int) -> tuple[str, int, str]:
    """Returns the error, how many batches were trained before, and another strategy's error."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    calls = 0
    batches: list[int] = []

    def die() -> np.float32:
        nonlocal calls
        calls += 1
        if worker_index() == victim and calls == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.float32(0)

    def loss(wanted: tf.Tensor, predicted: tf.Tensor) -> tf.Tensor:
        nothing = tf.numpy_function(die, [], tf.float32)
        nothing.set_shape([])
        return cross_entropy()(wanted, predicted) + nothing

    model = compiled(strategy, loss=loss)
    count = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: batches.append(batch)
    )
    try:
        model.fit(*data(), batch_size=8, verbose=0, callbacks=[count])
    except Exception as error:
        # A worker that does not coordinate the others is missed after 10 seconds only.
        afterwards = construct()[1] if victim == 0 else ""
        return type(error).__name__, len(batches), afterwards
    return "", len(batches), ""


@cases("victim", 0, 1)
def test_the_others_stop_when_a_worker_is_killed_in_a_step(victim: int) -> None:
    # Worker 0 also is the one that coordinates the others.
    step = 4
    outcomes = cluster.run(die_while_training, victim, step, may_fail=True, limit=LIMIT)
    assert outcomes[victim].returncode == -9
    survivor = outcomes[1 - victim]
    assert survivor.returncode == 0, survivor.log
    error, batches, afterwards = survivor.value
    assert error in ("UnavailableError", "AbortedError")
    assert batches == step - 1
    if victim == 0:
        assert "start all workers again" in afterwards


# Before 2.17 TensorFlow has no option that makes the first worker wait for the others.
@pytest.mark.skipif(
    tuple(map(int, tf.__version__.split(".")[:2])) < (2, 17),
    reason="with TensorFlow 2.16 the first worker registers and waits without a limit",
)
def test_workers_that_cannot_start_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    listening = socket.create_server(("127.0.0.1", 0))
    taken = f"127.0.0.1:{listening.getsockname()[1]}"
    monkeypatch.setenv("http_proxy", proxy := f"http://{taken}")  # which is no proxy
    no_peers = [cluster.tf_configs(2)[0], cluster.tf_configs(2)[1]]  # of two clusters
    alone = {"cluster": {"worker": [taken]}, "task": {"type": "worker", "index": 0}}
    configs = [*no_peers, json.dumps(alone)]
    with listening:
        ended = cluster.values(construct, None, 2.0, configs=configs, limit=LIMIT)
    for index, (error, message) in enumerate(ended[:2]):
        address = json.loads(no_peers[index])["cluster"]["worker"][index]
        assert error == "TimeoutError", message
        assert f"worker {index} at {address}, waited 2 seconds" in message
        assert f"http_proxy={proxy} is set" in message
        assert "unless no_proxy has them. Is each" in message
    assert ended[2][0] == "OSError", ended[2]
    assert f"worker 0 at {taken}, cannot listen" in ended[2][1]


def strategies_after_failures(coordinated: bool) -> list[int | float]:
    """Returns for each strategy how many rows it gathers, and then its variable's last value."""
    ours = tf_gc.CompressedMultiWorkerMirroredStrategy
    rows, variables = [], []
    for kind, late, fails in (
        (tf.distribute.MultiWorkerMirroredStrategy, None, True),
        *((ours, late, late != 0) for late in (1, 0, 1, 0)),
    ):
        if not coordinated:  # as in TensorFlow's own tests
            _compat.context().configure_coordination_service(service_type="")
        if worker_index() == late:
            time.sleep(1)  # makes its strategy after the other
        strategy = kind()
        with strategy.scope():
            variables.append(tf.Variable(1.0))

        def gather(width: int, strategy: Any = strategy) -> tf.Tensor:
            value = tf.ones([1, width])
            return tf.function(lambda: strategy.gather(value, axis=0), autograph=False)()

        rows.append(len(gather(3)))
        if fails:
            with pytest.raises(tf.errors.OpError):
                gather(4 + worker_index())  # shapes differ
    return rows + [float(variable.numpy()) for variable in variables]


@pytest.mark.parametrize("coordinated", [True, False])
def test_after_a_collective_has_failed_the_next_strategy_works(coordinated: bool) -> None:
    values = cluster.values(strategies_after_failures, coordinated, limit=LIMIT)
    assert values == [[2] * 5 + [1.0] * 5] * 2


def programs_that_differ() -> dict[str, str]:
    """Returns the error for each thing that worker 1 does alone, under one strategy."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    x, y = np.zeros((16, 8), np.float32), np.zeros((16, 4), np.float32)

    def train(odd: str) -> None:
        with strategy.scope():
            layers = [keras.layers.Dense(6 if odd == "width" else 5)]
            layers += [keras.layers.Dense(7)] * (odd == "depth")
            layers += [keras.layers.Dense(4)]
            layers[0].trainable = odd != "frozen"
            model = keras.Sequential([keras.Input((8,)), *layers])
            optimizer = "adam" if odd == "optimizer" else "sgd"
            model.compile(optimizer, "mse", steps_per_execution=2 if odd == "execution" else 1)
        model.fit(
            x,
            y,
            batch_size=16 if odd == "batch" else 8,
            steps_per_epoch=4 if odd == "steps" else 2,
            epochs=3 if odd == "epochs" else 2,
            validation_data=(x, y) if odd == "validation" else None,
            verbose=0,
        )

    errors = {}
    for case in PROGRAMS:
        try:
            train(case if worker_index() == 1 else "")
        except ValueError as error:
            errors[case] = str(error)
    return errors


# In the error of each case: parts of what worker 0 does, and of what worker 1 does.
PROGRAMS = {
    "width": ("makes a variable of float32 (8, 5), 'k", "makes a variable of float32 (8, 6), 'k"),
    "depth": ("makes a variable of float32 (5, 4), 'k", "makes a variable of float32 (5, 7), 'k"),
    "frozen": ("SGD, 4 weights to train with 69 el", "SGD, 2 weights to train with 24 elements"),
    "optimizer": ("begins to read data, ", "makes a variable of float32 (8, 5)"),
    "execution": ("steps_per_execution=1", "steps_per_execution=2"),
    "batch": ("batch_size=8", "batch_size=16"),
    "steps": ("steps_per_epoch=2", "steps_per_epoch=4"),
    "epochs": ("epochs=2", "epochs=3"),
    "validation": ("ends epoch 1 of fit", "begins to read data, steps_per_epoch=None"),
}
TWO_BIT = [{"type": "2bit", "threshold": threshold} for threshold in (0.5, 0.25)]


def test_workers_that_differ_say_what_each_does() -> None:
    calls = {
        "params": (construct, TWO_BIT),
        "packs": (construct, TWO_BIT[:1] * 2, None, (0, 2000)),
        "programs": (programs_that_differ,),
    }
    words = {
        "params": ("threshold=0.5", "threshold=0.25"),
        "packs": ("bytes_per_pack=0", "bytes_per_pack=2000"),
        **PROGRAMS,
    }
    for result in cluster.values(cluster.each, calls, limit=LIMIT):
        errors = {name: result[name][1] for name in ("params", "packs")} | result["programs"]
        assert list(errors) == list(words)
        for case, parts in words.items():
            header, *said = errors[case].split("\n")
            do = "compress gradients in different ways" if case not in PROGRAMS else "do different"
            assert f"the workers of this job {do}" in header
            for worker, (line, part) in enumerate(zip(said, parts, strict=True)):
                assert line.startswith(f"  worker {worker}: "), errors[case]
                assert re.search(rf"{re.escape(part)}(?!\d)", line), errors[case]
