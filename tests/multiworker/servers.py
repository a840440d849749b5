"""Clusters with parameter servers, in one process or in several."""

from __future__ import annotations

import functools
import os
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tf_gc
from examples import local_workers
from tests import ports
from tf_gc.ops import _loader

# With fewer threads, functions that wait for each other in one process wait for ever.
_THREADS = 16


@functools.cache
def in_this_process(workers: int) -> tf.distribute.cluster_resolver.SimpleClusterResolver:
    """The cluster of two servers whose tasks are all in this process, which is its coordinator."""
    addresses = ports.addresses(workers + 3)
    cluster = tf.train.ClusterSpec(
        {
            "worker": addresses[:workers],
            "ps": addresses[workers:-1],
            "chief": addresses[-1:],
        }
    )
    _loader.load()
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=_THREADS)
    for job in ("worker", "ps"):
        for index in range(cluster.num_tasks(job)):
            _KEPT.append(
                tf.distribute.Server(cluster, job_name=job, task_index=index, config=config)
            )
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="chief", task_id=0, rpc_layer="grpc"
    )


_KEPT: list[Any] = []


def tf_configs(workers: int, servers: int) -> list[str]:
    """TF_CONFIG of each task of a cluster of several processes: the coordinator's is the first."""
    jobs = {"chief": 1, "worker": workers, "ps": servers}
    return local_workers.configs_of(jobs, ports.addresses(sum(jobs.values())))


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


def run_on_all(
    strategy: Any, workers: int, replica: Callable[[tf.Tensor, tf.Tensor], Any], steps: int
) -> list[list[Any]]:
    """Has each worker run a replica once for each step; returns by step the values by worker.

    The replica takes the number of the step and of its worker.
    """
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        arrived = tf.Variable(0, dtype=tf.int64, trainable=False)

    @tf.function(autograph=False)
    def run(step: tf.Tensor) -> tuple[tf.Tensor, Any]:
        # Waits until all workers have come here, so that each of them runs one of the functions.
        with tf.device(arrived.device):
            number = arrived.assign_add(1, read_value=True)
            target = -(-number // workers) * workers
        tf.while_loop(lambda: arrived.read_value() < target, lambda: [], [], parallel_iterations=1)
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        value = strategy.run(lambda: replica(step, worker))
        return tf.cast(worker, tf.int64), value

    results = []
    for step in range(steps):
        values = [coordinator.schedule(run, args=(tf.constant(step),)) for _ in range(workers)]
        coordinator.join()
        fetched = sorted((value.fetch() for value in values), key=lambda each: int(each[0]))
        assert [int(each[0]) for each in fetched] == list(range(workers))
        results.append([value for _, value in fetched])
    return results


def bits(values: Sequence[Any]) -> list[bytes]:
    """The bytes of arrays or variables."""
    return [np.asarray(value).tobytes() for value in values]
