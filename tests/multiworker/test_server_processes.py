"""Parameter servers and workers as processes, that live and die."""

from __future__ import annotations

import contextlib
import json
import os
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
import tensorflow as tf

import tf_gc
from tests.cases import matrix
from tests.multiworker import cluster, servers

pytestmark = [pytest.mark.multiworker, pytest.mark.waits]

LIMIT = 120  # seconds, for what else would never end


class Job:
    """A matrix that workers pull, and push the gradient of its distance from another one."""

    def __init__(self, strategy: Any) -> None:
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        target = np.random.default_rng(1).normal(size=(60, 80)).astype(np.float32)
        with strategy.scope():
            self._matrix = tf.Variable(tf.zeros(target.shape))
            self._done = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._values: list[Any] = []

        @tf.function(autograph=False)
        def step() -> tf.Tensor:
            def replica() -> tf.Tensor:
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((self._matrix - target) ** 2)
                gradient = tape.gradient(loss, self._matrix)
                (pushed,) = tf_gc.push_gradients([(gradient, self._matrix)])
                with tf.device(self._matrix.device):
                    self._matrix.assign_sub(300.0 * pushed)
                self._done.assign_add(1)
                return loss

            return strategy.run(replica)

        self._step = step

    def schedule(self, steps: int) -> None:
        self._values += [self._coordinator.schedule(self._step) for _ in range(steps)]

    def run(self, steps: int = 0) -> None:
        self.schedule(steps)
        self._coordinator.join()

    def wait_until_done(self, steps: int) -> None:
        while int(self._done.numpy()) < steps:
            time.sleep(0.01)

    def wait_until_alive(self, workers: int) -> None:
        """Waits until that many workers have what they pulled."""
        while len(self._matrix.cache.on_worker.values) < workers:
            time.sleep(0.1)

    def outcome(self) -> dict[str, Any]:
        cache = self._matrix.cache
        pairs = zip(cache.on_worker.values, cache.minus.values, strict=True)
        return {
            "losses": [float(value.fetch()) for value in self._values],
            "done": int(self._done.numpy()),
            # Whether the servers believe of all workers what those have.
            "agree": all(np.array_equal(has.numpy(), -minus.numpy()) for has, minus in pairs),
        }


@contextlib.contextmanager
def task(resolver: Any, job: str, *program: str) -> Iterator[Any]:
    """Starts the last task of a job; yields its process, and how to kill it and start another."""
    started: list[subprocess.Popen[bytes]] = []
    index = resolver.cluster_spec().num_tasks(job) - 1
    config = {"cluster": resolver.cluster_spec().as_dict(), "task": {"type": job, "index": index}}

    def kill() -> None:
        for process in started:
            process.kill()
            process.wait()

    def start() -> None:
        started.append(
            subprocess.Popen(
                [sys.executable, *(program or ("-m", "tf_gc.server"))],
                env={**os.environ, "TF_CONFIG": json.dumps(config)},
            )
        )

    start()
    try:
        yield started[0], kill, start
    finally:
        kill()


def kill_and_restart(resolver: Any) -> dict[str, Any]:
    """Trains while a worker dies and comes back."""
    with task(resolver, "worker") as (_, kill, start):
        job = Job(tf_gc.CompressedParameterServerStrategy(resolver, pull="delta"))
        job.run(20)
        job.schedule(200)
        job.wait_until_done(40)
        kill()
        start()
        job.run()
        job.wait_until_alive(2)
        job.run(100)  # once more with both
        return job.outcome()


def stop_and_continue(resolver: Any) -> dict[str, Any]:
    """Trains while a worker stands still, and later goes on."""
    with task(resolver, "worker") as (worker, _, _):
        job = Job(tf_gc.CompressedParameterServerStrategy(resolver, pull="delta"))
        job.run(20)
        worker.send_signal(signal.SIGSTOP)
        job.schedule(200)
        job.wait_until_done(219)  # the others do all but the step that waits for the worker
        worker.send_signal(signal.SIGCONT)
        job.run()
        job.run(20)
        return job.outcome()


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
            job = Job(tf_gc.CompressedParameterServerStrategy(resolver))
            job.run(10)
            kill()
            comes_back.start()
            job.run(10)
        except Exception as error:
            return type(error).__name__
        finally:
            comes_back.cancel()
    return ""


def coordinated(program: Any, folder: Path, workers: int, job: str) -> Any:
    """Runs a program of the coordinator, which itself starts the last task of a job."""
    configs = servers.tf_configs(workers, 1)
    of_job = [config for config in configs if json.loads(config)["task"]["type"] == job]
    configs.remove(of_job[-1])
    outcome, *_ = cluster.values(
        servers.coordinate, program, str(folder), configs=configs, limit=LIMIT
    )
    return outcome


def test_a_worker_that_dies_and_comes_back_goes_on(tmp_path: Path) -> None:
    outcome = coordinated(kill_and_restart, tmp_path, 2, "worker")
    assert len(outcome["losses"]) == 320  # none was lost
    assert outcome["done"] >= 320  # one that runs again may count twice
    assert outcome["agree"]
    assert np.mean(outcome["losses"][-10:]) < 0.01 * outcome["losses"][0]


@matrix
def test_nobody_but_its_own_step_waits_for_a_worker_that_stands_still(tmp_path: Path) -> None:
    outcome = coordinated(stop_and_continue, tmp_path, 2, "worker")
    assert outcome["done"] == 240
    assert outcome["agree"]


def test_a_task_without_the_native_ops_is_named(tmp_path: Path) -> None:
    said = coordinated(without_ops, tmp_path, 1, "worker")
    assert said.startswith("/job:worker/task:0 cannot run tf_gc's native ops"), said
    assert "tf_gc.run_server()" in said


@matrix
def test_a_dead_server_is_an_error(tmp_path: Path) -> None:
    assert coordinated(dead_server, tmp_path, 1, "ps") == "UnavailableError"
