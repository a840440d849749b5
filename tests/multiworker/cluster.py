"""Runs a function in several worker processes that TF_CONFIG joins to a cluster.

A scenario is a function of a module in this folder. Every worker calls it, with the arguments
given, and what it returns comes back; all of that has to pickle.
"""

import dataclasses
import gc
import json
import os
import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests import ports
from tests.fork_server import ForkServer, Task
from tf_gc.launch.tasks import tasks_of

# With what workers import.
_FORK_SERVER = ForkServer(["tensorflow", "keras", "pytest", "tf_gc"])


@dataclasses.dataclass
class Outcome:
    returncode: int
    log: str
    value: Any  # what the scenario returned, None if it did not


def tf_configs(workers: int, chiefs: int = 0, hosts: int = 1) -> list[str]:
    """Returns the TF_CONFIG of each; hosts are addresses of this one, which take turns."""
    counts = {"chief": chiefs, "worker": workers - chiefs}
    counts = {job: count for job, count in counts.items() if count}
    ports_of = enumerate(ports.free_ports(workers))
    addresses = [f"127.0.0.{1 + i % hosts}:{port}" for i, port in ports_of]
    return [task.tf_config for task in tasks_of(counts, addresses)]


def run(
    scenario: Callable[..., Any],
    *arguments: Any,
    workers: int = 2,
    devices: int = 1,
    configs: Sequence[str] | None = None,
    limit: float = 600,
    may_fail: bool = False,
    new: int = 0,
    optimized: bool = False,
) -> list[Outcome]:
    """Runs a scenario in a cluster and waits for all its workers, each a process of its own.

    `devices` are logical CPUs of each worker, `limit` is in seconds. The first `new` workers are a
    new Python instead of a fork of one that has imported TensorFlow. `optimized` has TensorFlow
    optimize graphs, as it does for users: a quarter of the time that Keras' training takes here.
    """
    configs = tf_configs(workers) if configs is None else configs
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "task").write_bytes(pickle.dumps((devices, optimized, scenario, arguments)))
        tasks = [
            Task(
                f"{__name__}:work",
                [folder, str(i)],
                {**os.environ, "TF_CONFIG": config, "TF_CPP_MIN_LOG_LEVEL": "1"},
                log=str(Path(folder, f"log{i}")),
                new=i < new,
            )
            for i, config in enumerate(configs)
        ]
        returncodes, late = _FORK_SERVER.run(tasks, limit)
        outcomes = [
            Outcome(returncode, Path(folder, f"log{i}").read_text(errors="replace"), None)
            for i, returncode in enumerate(returncodes)
        ]
        for i, outcome in enumerate(outcomes):
            if (path := Path(folder, f"value{i}")).exists():
                outcome.value = pickle.loads(path.read_bytes())
    failed = not may_fail and any(outcome.returncode for outcome in outcomes)
    if late or failed:
        how = f"ran longer than {limit} s" if late else "failed"
        logs = "\n".join(
            f"==== worker {i}, exit code {o.returncode}\n{o.log}" for i, o in enumerate(outcomes)
        )
        raise AssertionError(f"{scenario.__name__} {how}:\n{logs}")
    return outcomes


def values(scenario: Callable[..., Any], *arguments: Any, **options: Any) -> list[Any]:
    """Runs a scenario and returns what each worker's function returned."""
    return [outcome.value for outcome in run(scenario, *arguments, **options)]


def each(calls: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """A scenario of several ones: calls each function with its arguments, and names results."""
    return {name: function(*arguments) for name, (function, *arguments) in calls.items()}


def work(folder: str, index: str) -> None:
    import tensorflow as tf

    devices, optimized, scenario, arguments = pickle.loads(Path(folder, "task").read_bytes())
    if devices > 1:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * devices,
        )
    tf.config.threading.set_intra_op_parallelism_threads(1)
    gc.set_threshold(50_000)  # as in tests/conftest.py
    if not optimized:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    partial = Path(folder, f"partial{index}")
    partial.write_bytes(pickle.dumps(scenario(*arguments)))
    partial.rename(Path(folder, f"value{index}"))


def worker_index() -> int:
    return int(json.loads(os.environ["TF_CONFIG"])["task"]["index"])
