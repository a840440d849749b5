"""Parameter servers and workers as processes, that live and die."""

import contextlib
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tf_gc
from tests import ports
from tests.cases import matrix
from tests.multiworker import cluster
from tests.parameter_server import servers
from tf_gc.launch.tasks import tasks_of

pytestmark = [pytest.mark.multiworker, pytest.mark.waits]

LIMIT = 120  # seconds, for what else would never end


def delta_matrix(resolver: Any) -> servers.Matrix:
    return servers.Matrix(tf_gc.CompressedParameterServerStrategy(resolver, pull="delta"))


def wait_until_done(job: servers.Matrix, steps: int) -> None:
    while int(job.done.numpy()) < steps:
        time.sleep(0.01)


def outcome(job: servers.Matrix, losses: list[Any]) -> dict[str, Any]:
    cache = job.variable.cache
    pairs = zip(cache.on_worker.values, cache.minus.values, strict=True)
    return {
        "losses": [float(loss) for loss in losses],
        "done": int(job.done.numpy()),
        # Whether the servers believe of all workers what those have.
        "agree": all(np.array_equal(has.numpy(), -minus.numpy()) for has, minus in pairs),
    }


@contextlib.contextmanager
def task(resolver: Any, job: str, *program: str) -> Iterator[Any]:
    """Starts the last task of a job; yields its process, and how to kill it and start another."""
    started: list[subprocess.Popen[bytes]] = []
    command = [sys.executable, *(program or ("-m", "tf_gc.server"))]
    index = resolver.cluster_spec().num_tasks(job) - 1
    config = {"cluster": resolver.cluster_spec().as_dict(), "task": {"type": job, "index": index}}

    def kill() -> None:
        for process in started:
            process.kill()
            process.wait()

    def start() -> None:
        environment = {**os.environ, "TF_CONFIG": json.dumps(config)}
        started.append(subprocess.Popen(command, env=environment))

    start()
    try:
        yield started[0], kill, start
    finally:
        kill()


def kill_and_restart(resolver: Any) -> dict[str, Any]:
    with task(resolver, "worker") as (_, kill, start):
        job = delta_matrix(resolver)
        job.steps.run(20)
        job.steps.schedule(200)
        wait_until_done(job, 40)
        kill()
        start()
        job.steps.run(0)
        while len(job.variable.cache.on_worker.values) < 2:
            time.sleep(0.1)
        return outcome(job, job.steps.run(100))  # once more with both


def stop_and_continue(resolver: Any) -> dict[str, Any]:
    with task(resolver, "worker") as (worker, _, _):
        job = delta_matrix(resolver)
        job.steps.run(20)
        worker.send_signal(signal.SIGSTOP)
        job.steps.schedule(200)
        wait_until_done(job, 219)  # the others do all but the step that waits for the worker
        worker.send_signal(signal.SIGCONT)
        job.steps.run(0)
        return outcome(job, job.steps.run(20))


PLAIN_SERVER = """
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
cluster, job, index = resolver.cluster_spec(), resolver.task_type, resolver.task_id
tf.distribute.Server(cluster, job_name=job, task_index=index).join()
"""


def without_ops(resolver: Any) -> str:
    """Makes a strategy where a worker is a server of TensorFlow, without tf_gc's native ops."""
    with task(resolver, "worker", "-c", PLAIN_SERVER), pytest.raises(RuntimeError) as error:
        tf_gc.CompressedParameterServerStrategy(resolver)
    return str(error.value)


def dead_server(resolver: Any) -> str:
    """Trains until a server dies; says how that ends, at the latest when the server is back."""
    with task(resolver, "ps") as (_, kill, start):
        # Seldom, TensorFlow takes the error for the worker's, and waits until the server answers.
        comes_back = threading.Timer(30, start)
        try:
            job = servers.Matrix(tf_gc.CompressedParameterServerStrategy(resolver))
            job.steps.run(10)
            kill()
            comes_back.start()
            job.steps.run(10)
        except Exception as error:
            return type(error).__name__
        finally:
            comes_back.cancel()
    return ""


def coordinated(program: Any, folder: Path, workers: int, job: str) -> Any:
    """Runs a program of the coordinator, which itself starts the last task of a job."""
    tasks = tasks_of({"chief": 1, "worker": workers, "ps": 1}, ports.addresses(2 + workers))
    tasks.remove([each for each in tasks if each.type == job][-1])
    configs = [each.tf_config for each in tasks]
    return cluster.values(servers.coordinate, program, str(folder), configs=configs, limit=LIMIT)[0]


def test_a_worker_that_dies_and_comes_back_goes_on(tmp_path: Path) -> None:
    found = coordinated(kill_and_restart, tmp_path, 2, "worker")
    assert len(found["losses"]) == 320  # none was lost
    assert found["done"] >= 320  # one that runs again may count twice
    assert found["agree"]
    assert np.mean(found["losses"][-10:]) < 0.01 * found["losses"][0]


@matrix
def test_nobody_but_its_own_step_waits_for_a_worker_that_stands_still(tmp_path: Path) -> None:
    found = coordinated(stop_and_continue, tmp_path, 2, "worker")
    assert found["done"] == 240
    assert found["agree"]


def test_a_task_without_the_native_ops_is_named(tmp_path: Path) -> None:
    said = coordinated(without_ops, tmp_path, 1, "worker")
    assert said.startswith("/job:worker/task:0 cannot run tf_gc's native ops"), said
    assert "tf_gc.run_server()" in said


@matrix
def test_a_dead_server_is_an_error(tmp_path: Path) -> None:
    assert coordinated(dead_server, tmp_path, 1, "ps") == "UnavailableError"


def test_the_program_takes_no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tf_gc.server", "ps"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("tf_gc.server", run_name="__main__")
    assert ended.value.code == 2
