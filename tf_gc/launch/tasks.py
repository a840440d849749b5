"""The tasks of a job: their addresses, the environment of each, and which of them are here."""

import contextlib
import dataclasses
import glob
import itertools
import json
import os
import random
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

# Below the ports that Linux gives to whoever asks for any.
_PORTS = range(10_000, 20_000)
_PATIENCE = 60.0  # seconds until the name of a new pod is known
MAX_PORT = 65535
# Names the file for what a process tells its launcher, if that starts it again: `MET` once it has
# met the other workers, and folders of backups that are not needed when all have ended well.
MESSAGES, MET = "TF_GC_LAUNCH_MESSAGES", "met"


@dataclasses.dataclass(frozen=True)
class Task:
    """A task of a job: its type and index in `TF_CONFIG`, and the addresses of all tasks by type.

    An evaluator is not in the cluster.
    """

    type: str
    index: int
    cluster: Mapping[str, Sequence[str]]

    def __str__(self) -> str:
        return f"{self.type} {self.index}"

    @property
    def address(self) -> str | None:
        """The "host:port" where it listens, if it does."""
        return self.cluster[self.type][self.index] if self.type in self.cluster else None

    @property
    def tf_config(self) -> str:
        """Its `TF_CONFIG`."""
        task = {"type": self.type, "index": self.index}
        return json.dumps({"cluster": self.cluster, "task": task})

    def environment(self) -> dict[str, str]:
        """Returns the environment of its process."""
        # gRPC would ask a proxy of the environment for the other tasks. It compares hosts without
        # brackets, and looks at `no_proxy` only if there is no `no_grpc_proxy`.
        addresses = itertools.chain(*self.cluster.values())
        hosts = sorted({_split(address)[0].strip("[]") for address in addresses})
        given = dict(os.environ)
        hosts = [*filter(None, [given.get("no_grpc_proxy") or given.get("no_proxy")]), *hosts]
        return {**given, "TF_CONFIG": self.tf_config, "no_grpc_proxy": ",".join(hosts)}


def tell_launcher(text: str) -> None:
    """Tells the launcher of this process something, if that would start it again."""
    if path := os.environ.get(MESSAGES):
        with contextlib.suppress(OSError), open(path, "a") as file:
            print(text, file=file)


def tasks_of(counts: Mapping[str, int], addresses: Iterable[str]) -> list[Task]:
    """Returns a number of tasks of each type, with the addresses that come first."""
    rest = iter(addresses)
    cluster = {type: list(itertools.islice(rest, count)) for type, count in counts.items()}
    return [Task(type, i, cluster) for type, count in counts.items() for i in range(count)]


def on_this_host(workers: int, servers: int = 0, evaluator: bool = False) -> list[Task]:
    """Returns the tasks of a job on this host, at free ports; with servers there is a chief."""
    counts = {"chief": 1, "worker": workers, "ps": servers} if servers else {"worker": workers}
    if (count := sum(counts.values())) > len(_PORTS) // 2:
        raise ValueError(f"this host has {len(_PORTS) // 2} ports for tasks, and not {count}")
    shuffled = (f"127.0.0.1:{port}" for port in random.sample(_PORTS, len(_PORTS)))
    tasks = tasks_of(counts, itertools.filterfalse(answers, shuffled))
    return tasks + [Task("evaluator", 0, tasks[0].cluster)] * evaluator


def on_hosts(
    hosts: str, port: int, per_host: int = 1, index: int | None = None
) -> tuple[list[Task], list[Task]]:
    """Returns the tasks of a job on hosts such as "10.0.0.1,n2:9000", and those that are here.

    Workers of a host have consecutive ports. `index` says which host this is; `None` looks at its
    addresses, and if they do not tell, there is a ValueError.
    """
    places = [_split(host, port) for host in hosts.split(",")]
    if index is None:
        here = [i for i, (host, _) in enumerate(places) if _is_here(host)]
        if len(here) != 1:
            which = " and ".join(hosts.split(",")[i] for i in here) + " are" if here else "none is"
            raise ValueError(
                f"of --hosts {hosts} {which} this host, by its addresses: give its --index, and "
                "--workers-per-host if it has several workers"
            )
        (index,) = here
    if index >= len(places):
        raise ValueError(f"--index must be 0 to {len(places) - 1} with --hosts {hosts}: {index}")
    if (last := max(port for _, port in places) + per_host - 1) > MAX_PORT:
        raise ValueError(f"ports end at {MAX_PORT}, and {per_host} workers per host need {last}")
    addresses = [f"{host}:{port + i}" for host, port in places for i in range(per_host)]
    tasks = tasks_of({"worker": len(addresses)}, addresses)
    return tasks, tasks[index * per_host :][:per_host]


def in_pods(service: str, pods: int, port: int) -> tuple[list[Task], list[Task]]:
    """Returns the tasks of an indexed Job with a headless service, and the one of this pod."""
    index, name = os.environ.get("JOB_COMPLETION_INDEX", ""), socket.gethostname()
    if not index.isdecimal() or not name.endswith(f"-{index}") or int(index) >= pods:
        raise ValueError(
            f"--service is for a pod of an indexed Job: of {pods} pods, JOB_COMPLETION_INDEX is "
            f"{index!r} and the name of this one {name!r}"
        )
    job = name.removesuffix(index)
    addresses = [f"{job}{i}.{service}:{port}" for i in range(pods)]
    tasks = tasks_of({"worker": pods}, addresses)
    return tasks, [tasks[int(index)]]


def check(tasks: Sequence[Task], here: Sequence[Task], pods: bool) -> None:
    """Looks for what usually goes wrong. Of tasks in pods, the others need not be there yet.

    Raises:
      ValueError: if TF_CONFIG is set to something else, or two tasks have the same address.
      OSError: if a host has no address, or a port here is in use.
    """
    if config := os.environ.get("TF_CONFIG"):
        same = False
        with contextlib.suppress(json.JSONDecodeError):
            same = json.loads(config) in [json.loads(task.tf_config) for task in here]
        if not same:
            raise ValueError(f"TF_CONFIG is set, to something else: {config}")
    addresses = [task.address for task in tasks if task.address]
    if len({*addresses}) < len(addresses):
        raise ValueError(f"two tasks have the same address: {', '.join(addresses)}")
    deadline = time.monotonic() + _PATIENCE * pods
    for host in {_split(task.address)[0] for task in (here if pods else tasks) if task.address}:
        while True:
            try:
                socket.getaddrinfo(host.strip("[]"), None)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise OSError(f"the host {host!r} has no address: {error}") from error
                time.sleep(1)
    for task in here:
        if task.address and answers(task.address):
            raise OSError(
                f"the port of {task}, {task.address}, is in use, by another job or by a launcher "
                "with the same index"
            )


def gpus_of(here: Sequence[Task]) -> list[dict[str, str]]:
    """Returns, for the environment of each task, its part of the GPUs if there are enough.

    They are for workers; other tasks see none.
    """
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is None:
        visible = ",".join(map(str, range(len(glob.glob("/proc/driver/nvidia/gpus/*")))))
    # As CUDA does, up to the first that names none, such as -1.
    gpus = [*itertools.takewhile(lambda gpu: gpu.strip()[:1] not in "-", visible.split(","))]
    workers = [task for task in here if task.type == "worker"]
    each = len(gpus) // len(workers)
    if len(here) == 1 or not each:
        return [{} for _ in here]
    shares = [",".join(gpus[i * each :][:each]) for i in range(len(workers))]
    return [{"CUDA_VISIBLE_DEVICES": shares.pop(0) if t in workers else ""} for t in here]


def _split(address: str, port: int | None = None) -> tuple[str, int]:
    """Splits "host:port", or "host" if there is a port; an IPv6 address has brackets."""
    try:
        given = urlsplit(f"//{address}").port
        host = address.removesuffix(f":{given}")
        if host and (found := given or port):
            return host, found
    except ValueError:
        pass
    raise ValueError(
        f"must be host or host:port, with a port from 1 to {MAX_PORT}, got {address!r}"
    )


def _is_here(host: str) -> bool:
    """Whether a host is this one: no other address can be bound."""
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    try:
        socket.create_server((host.strip("[]"), 0), family=family).close()
    except OSError:
        return False
    return True


def answers(address: str) -> bool | None:
    """Returns whether somebody listens at an address, `None` if that is unknown."""
    host, port = _split(address)
    try:
        socket.create_connection((host.strip("[]"), port), timeout=1).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return None
    return True
