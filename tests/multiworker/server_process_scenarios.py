"""What the tasks of a cluster with parameter servers do, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import tensorflow as tf

import tf_gc
from tests.multiworker import servers


def train(folder: str, steps: int) -> Any:
    """Trains a matrix to be another one, with pulls of differences."""
    return servers.coordinate(_train, folder, steps)


def _train(resolver: Any, steps: int) -> dict[str, Any]:
    strategy = tf_gc.CompressedParameterServerStrategy(resolver, pull="delta")
    job = Job(strategy)
    job.run(steps)
    return {"losses": job.losses(), "done": job.done(), "agree": job.caches_agree()}


class Job:
    """A matrix that workers pull, and push the gradient of its distance from another one.

    Args:
      strategy: makes the variables.
    """

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy
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

    def join(self) -> None:
        self._coordinator.join()

    def run(self, steps: int) -> None:
        self.schedule(steps)
        self.join()

    def losses(self) -> list[float]:
        return [float(value.fetch()) for value in self._values]

    def alive(self) -> int:
        """How many workers have what they pulled."""
        return len(self._matrix.cache.on_worker.values)

    def done(self) -> int:
        return int(self._done.numpy())

    def caches_agree(self) -> bool:
        """Whether the servers believe of all workers what those have."""
        cache = self._matrix.cache
        pairs = zip(cache.on_worker.values, cache.minus.values, strict=True)
        return all(np.array_equal(has.numpy(), -minus.numpy()) for has, minus in pairs)


def kill_and_restart(folder: str, times: int) -> Any:
    """Trains while a worker, one that is not of this cluster's processes, dies and comes back."""
    return servers.coordinate(_kill_and_restart, folder, times)


def _kill_and_restart(resolver: Any, times: int) -> dict[str, Any]:
    last = resolver.cluster_spec().num_tasks("worker") - 1
    worker = _start(resolver, "worker", last)
    try:
        job = Job(tf_gc.CompressedParameterServerStrategy(resolver, pull="delta"))
        scheduled = 0
        for _ in range(times):
            job.run(20)
            before = job.done()
            job.schedule(200)
            scheduled += 220
            while job.done() < before + 20:
                time.sleep(0.01)
            worker.send_signal(signal.SIGKILL)
            worker.wait()
            worker = _start(resolver, "worker", last)
            job.join()
            while job.alive() < last + 1:
                time.sleep(0.1)
        # Once more with both.
        job.run(100)
        scheduled += 100
        return {
            "losses": job.losses(),
            "scheduled": scheduled,
            "done": job.done(),
            "agree": job.caches_agree(),
        }
    finally:
        worker.kill()
        worker.wait()


def stop_and_continue(folder: str) -> Any:
    """Trains while a worker stands still, and later goes on."""
    return servers.coordinate(_stop_and_continue, folder)


def _stop_and_continue(resolver: Any) -> dict[str, Any]:
    last = resolver.cluster_spec().num_tasks("worker") - 1
    worker = _start(resolver, "worker", last)
    try:
        job = Job(tf_gc.CompressedParameterServerStrategy(resolver, pull="delta"))
        job.run(20)
        worker.send_signal(signal.SIGSTOP)
        job.schedule(200)
        # The others do all but the step that waits for the worker.
        while job.done() < 219:
            time.sleep(0.01)
        worker.send_signal(signal.SIGCONT)
        job.join()
        job.run(20)
        return {"done": job.done(), "agree": job.caches_agree()}
    finally:
        worker.kill()
        worker.wait()


PLAIN_SERVER = """
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
cluster, job, index = resolver.cluster_spec(), resolver.task_type, resolver.task_id
tf.distribute.Server(cluster, job_name=job, task_index=index).join()
"""


def without_ops(folder: str) -> Any:
    """Makes a strategy where a worker is a server of TensorFlow, without tf_gc's native ops."""
    return servers.coordinate(_without_ops, folder)


def _without_ops(resolver: Any) -> str:
    worker = _start(resolver, "worker", 0, "-c", PLAIN_SERVER)
    try:
        tf_gc.CompressedParameterServerStrategy(resolver)
    except RuntimeError as error:
        return str(error)
    finally:
        worker.kill()
    return ""


def _start(resolver: Any, job: str, index: int, *program: str) -> subprocess.Popen[bytes]:
    """Starts a task of the cluster, by default by `python -m tf_gc.server`."""
    config = {
        "cluster": resolver.cluster_spec().as_dict(),
        "task": {"type": job, "index": index},
    }
    return subprocess.Popen(
        [sys.executable, *(program or ("-m", "tf_gc.server"))],
        env={**os.environ, "TF_CONFIG": json.dumps(config)},
    )


def dead_server(folder: str) -> Any:
    """Trains until a server dies; says how that ends, at the latest when the server is back."""
    return servers.coordinate(_dead_server, folder)


def _dead_server(resolver: Any) -> str:
    servers_started = [_start(resolver, "ps", 0)]
    # Seldom, TensorFlow takes the error for the worker's, and waits until the server answers.
    comes_back = threading.Timer(30, lambda: servers_started.append(_start(resolver, "ps", 0)))
    try:
        job = Job(tf_gc.CompressedParameterServerStrategy(resolver))
        job.run(10)
        servers_started[0].kill()
        servers_started[0].wait()
        comes_back.start()
        job.run(10)
    except Exception as error:
        return type(error).__name__
    finally:
        comes_back.cancel()
        for server in servers_started:
            server.kill()
    return ""
