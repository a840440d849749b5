"""Joins a cluster of workers, with errors that say what is wrong with the cluster.

TensorFlow does not check the description of a cluster. If it has a port above 65535, a parameter
server, or the same address twice, workers wait for each other for an hour. Other mistakes end in
"Invalid device filter" or "Could not start gRPC server".
"""

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any, TypeAlias

import tensorflow as tf

from tf_gc.cluster.late_workers import naming_late_workers
from tf_gc.launch.tasks import MAX_PORT

Resolver: TypeAlias = tf.distribute.cluster_resolver.ClusterResolver

_JOBS = ("chief", "worker", "evaluator")
# TensorFlow copies what a collective sends into strings of 4 KB each, unless it is told otherwise.
# Above 128 KB glibc would ask the kernel for the memory of each string.
_CHUNK_BYTES = 64 << 10
_EXAMPLE = '{"cluster": {"worker": ["10.0.0.1:8888"]}, "task": {"type": "worker", "index": 0}}'
# Variables that gRPC reads, in its order (doc/environment_variables.md): lower case only.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
# The second one follows a strategy of one host.
_TOO_LATE = ("must be configured at program startup", "Collective ops are already configured")


def check_cluster(resolver: Resolver | None) -> Resolver:
    """Returns a resolver, by default of `TF_CONFIG`, if it describes a usable cluster.

    One without any workers is usable: this process trains alone. Otherwise a ValueError names the
    wrong value.
    """
    resolver = resolver or tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if isinstance(resolver, tf.distribute.cluster_resolver.TFConfigClusterResolver):
        _check_tf_config()
    jobs = resolver.cluster_spec().jobs
    if not jobs:
        return resolver
    for job in jobs:
        if job not in _JOBS:
            raise ValueError(
                f"the cluster has tasks of the type {job!r}; this strategy knows {_JOBS}"
            )
    tasks = tasks_of(resolver)
    _check_addresses(tasks)
    mine = (resolver.task_type, resolver.task_id)
    if None in mine:
        raise ValueError(
            "the cluster's workers are known, but not which of them this process is: task type "
            f"{mine[0]!r}, task index {mine[1]!r}. TF_CONFIG is such as {_EXAMPLE}"
        )
    if mine not in tasks and not is_evaluator(resolver):
        known = ", ".join(f"{job} {index}" for job, index in tasks)
        raise ValueError(f"this process is {mine[0]} {mine[1]}, the cluster has {known}")
    return resolver


def tasks_of(resolver: Resolver) -> dict[tuple[str, int], str]:
    """Returns the address of each task, by job and index; of a cluster that may be wrong, too."""
    spec = resolver.cluster_spec()
    indices = ((job, index) for job in spec.jobs for index in spec.task_indices(job))
    return {(job, index): spec.task_address(job, index) for job, index in indices}


def is_evaluator(resolver: Resolver) -> bool:
    """Returns whether this process is an evaluator: alone, and need not be in the cluster."""
    return bool(resolver.task_type == "evaluator")


@contextlib.contextmanager
def joining(
    resolver: Resolver | None, timeout_seconds: float | None, patience: float = 30
) -> Iterator[None]:
    """Checks the cluster, and replaces errors of TensorFlow's start by readable ones.

    If joining takes longer than `patience`, in seconds, a line on stderr says who is awaited.

    Raises:
      ValueError: see `check_cluster`.
      RuntimeError: if TensorFlow has run something before.
      OSError: if this worker's port is taken.
      TimeoutError: if the other workers did not start in time.
    """
    resolver = check_cluster(resolver)
    limit = "an hour (communication_options have no timeout_seconds)"
    if timeout_seconds:
        limit = f"{timeout_seconds:g} seconds (timeout_seconds of communication_options)"
    waits = f"{_describe(resolver)} has waited {patience:g} seconds of {limit} for the others"
    try:
        with naming_late_workers(patience, waits, _others(resolver)):
            yield
    except (RuntimeError, ValueError) as error:
        if not any(text in str(error) for text in _TOO_LATE):
            raise
        raise RuntimeError(
            "TensorFlow has run something in this process, after which it joins no cluster: make "
            "the strategy first, before any tensor, variable, model or other strategy"
        ) from error
    except tf.errors.UnknownError as error:
        if "Could not start gRPC server" not in error.message:
            raise
        raise OSError(
            f"this worker, {_describe(resolver)}, cannot listen on its port, which another process "
            f"uses, perhaps a worker of a job that has not ended. {_config_hint()}"
        ) from error
    except tf.errors.DeadlineExceededError as error:
        raise TimeoutError(
            f"this worker, {_describe(resolver)}, waited {limit} for the others, and not all "
            f"came. {_config_hint()}{_proxy_hint()}Is each of them running, and can they reach "
            f"each other's ports? {error.message}"
        ) from error


def set_server_options(config: tf.compat.v1.ConfigProto, timeout_seconds: float | None) -> None:
    """Lets a worker give up if the others do not come in time, and send in larger chunks.

    `timeout_seconds` are of `CommunicationOptions`: `None` or 0 leaves an hour.
    """
    if not config.experimental.recv_buf_max_chunk:  # the program has not chosen a size
        config.experimental.recv_buf_max_chunk = _CHUNK_BYTES
    if timeout_seconds:
        coordination = config.experimental.coordination_config
        coordination.cluster_register_timeout_in_ms = int(timeout_seconds * 1000)
        # Without the barrier, the first worker would register and then wait without a limit.
        # TensorFlow 2.16 has no such option.
        if "cluster_register_with_barrier" in coordination.DESCRIPTOR.fields_by_name:
            coordination.cluster_register_with_barrier = True


def _check_tf_config() -> None:
    text = os.environ.get("TF_CONFIG", "{}")
    wrong = ""
    try:
        config = json.loads(text)
        lists, index = config.get("cluster", {}).values(), config.get("task", {}).get("index", 0)
        int(index)
        if not all(isinstance(addresses, list | dict) for addresses in lists):
            wrong = "a job has a list of addresses"
        elif "task" in config and "cluster" not in config:  # for TensorFlow a job of one worker
            wrong = 'there is a "task" but no "cluster"'
    except (AttributeError, TypeError, ValueError) as error:
        wrong = str(error)
    if wrong:
        raise ValueError(f"TF_CONFIG must be JSON such as {_EXAMPLE} ({wrong}), got {text!r}")


def _check_addresses(tasks: dict[tuple[str, int], str]) -> None:
    seen: dict[str, tuple[str, int]] = {}
    for task, address in tasks.items():
        host, _, port = address.rpartition(":")
        if not host or "/" in host or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
            raise ValueError(
                f"{task[0]} {task[1]} of the cluster has the address {address!r}; an address is "
                f'"host:port", with a port from 1 to {MAX_PORT}'
            )
        if address in seen:
            other = seen[address]
            raise ValueError(
                f"{other[0]} {other[1]} and {task[0]} {task[1]} of the cluster have the same "
                f"address, {address!r}"
            )
        seen[address] = task


def _others(resolver: Resolver) -> dict[str, str]:
    """Returns the addresses of the workers for which this process waits."""
    mine = (resolver.task_type, resolver.task_id)
    return {
        f"{job} {index}": address
        for (job, index), address in tasks_of(resolver).items()
        if job != "evaluator" and (job, index) != mine and not is_evaluator(resolver)
    }


def _describe(resolver: Resolver) -> str:
    task: tuple[Any, Any] = (resolver.task_type, resolver.task_id)
    return f"{task[0]} {task[1]} at {tasks_of(resolver).get(task)}"


def _config_hint() -> str:
    """Says what `TF_CONFIG` was when the process started, if the program has replaced it."""
    with contextlib.suppress(OSError), open("/proc/self/environ", errors="replace") as file:
        given = dict(line.partition("=")[::2] for line in file.read().split("\0"))
        if (config := given.get("TF_CONFIG")) not in (None, os.environ.get("TF_CONFIG")):
            return (
                "The program has overwritten the TF_CONFIG with which it was started, as by the "
                f"launcher: {config}. Do not change it. "
            )
    return ""


def _proxy_hint() -> str:
    """Says which variable sends connections to workers through a proxy; empty if none does."""
    name = next((name for name in _PROXIES if os.environ.get(name)), None)
    if name is None:
        return ""
    return (
        f"{name}={os.environ[name]} is set: gRPC connects to them through that proxy, unless "
        "no_proxy has them. "
    )
