"""Clusters with parameter servers, in one process or in several."""

import functools
import os
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tf_gc
from tests import ports
from tf_gc.ops import _loader

# With fewer threads, functions that wait for each other in one process wait for ever.
_THREADS = 16
_KEPT: list[Any] = []


@functools.cache
def in_this_process(workers: int) -> tf.distribute.cluster_resolver.SimpleClusterResolver:
    """The cluster of two servers whose tasks are all in this process, which is its coordinator."""
    addresses = ports.addresses(workers + 3)
    jobs = {"worker": addresses[:workers], "ps": addresses[workers:-1], "chief": addresses[-1:]}
    cluster = tf.train.ClusterSpec(jobs)
    _loader.load()
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=_THREADS)
    for job in ("worker", "ps"):
        for index in range(cluster.num_tasks(job)):
            _KEPT.append(tf.distribute.Server(cluster, job, index, config=config))
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="chief", task_id=0, rpc_layer="grpc"
    )


def coordinate(program: Callable[..., Any], folder: str, *arguments: Any) -> Any:
    """Runs the program if this process is the coordinator; else serves until it has ended."""
    ended = Path(folder, "ended")
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type == "chief":
        try:
            return program(resolver, *arguments)
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # the threads of a coordinator would go on
        finally:
            ended.touch()
    threading.Thread(target=tf_gc.run_server, daemon=True).start()
    while not ended.exists():
        time.sleep(0.05)
    os._exit(0)


class Steps:
    """A function of a replica, and what the workers of a strategy returned that ran it."""

    def __init__(self, strategy: Any, replica: Callable[..., Any]) -> None:
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self.function = tf.function(lambda *args: strategy.run(replica, args), autograph=False)
        self._values: list[Any] = []

    def schedule(self, times: int, *args: Any) -> None:
        self._values += [self._coordinator.schedule(self.function, args) for _ in range(times)]

    def run(self, times: int, *args: Any) -> list[Any]:
        """Returns all values so far, the latest last."""
        self.schedule(times, *args)
        self._coordinator.join()
        return [value.fetch() for value in self._values]


class Matrix:
    """A variable, or its shards, that workers train to be another matrix."""

    def __init__(self, strategy: Any) -> None:
        target = np.random.default_rng(1).normal(size=(60, 80)).astype(np.float32)
        with strategy.scope():
            self.variable = tf.Variable(tf.zeros(target.shape), name="matrix")
            self.done = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.shards = getattr(self.variable, "variables", [self.variable])

        def replica() -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.convert_to_tensor(self.variable) - target) ** 2)
            gradients = tape.gradient(loss, self.shards)
            pushed = tf_gc.push_gradients(zip(gradients, self.shards, strict=True))
            for gradient, shard in zip(pushed, self.shards, strict=True):
                with tf.device(shard.device):
                    shard.assign_sub(300.0 * gradient)
            self.done.assign_add(1)
            return loss

        self.steps = Steps(strategy, replica)


def run_on_all(
    strategy: Any, workers: int, replica: Callable[[tf.Tensor, tf.Tensor], Any], steps: int
) -> list[list[Any]]:
    """Has each worker run `replica(step, worker)` for each step; returns values by step, worker."""
    with strategy.scope():
        arrived = tf.Variable(0, dtype=tf.int64, trainable=False)

    def on_worker(step: tf.Tensor) -> tuple[tf.Tensor, Any]:
        # Waits until all workers have come here, so that each of them runs one of the functions.
        with tf.device(arrived.device):
            number = arrived.assign_add(1, read_value=True)
            target = -(-number // workers) * workers
        tf.while_loop(lambda: arrived.read_value() < target, lambda: [], [], parallel_iterations=1)
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        return tf.cast(worker, tf.int64), replica(step, worker)

    all_steps = Steps(strategy, on_worker)
    results = []
    for step in range(steps):
        values = all_steps.run(workers, tf.constant(step))[-workers:]
        values.sort(key=lambda each: int(each[0]))
        assert [int(each[0]) for each in values] == list(range(workers))
        results.append([value for _, value in values])
    return results
