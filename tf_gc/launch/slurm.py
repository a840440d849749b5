"""The tasks of a Slurm job step, by the environment that `srun` makes."""

import itertools
import os
import re
from typing import Any

_HOST = r"(?:[^\[\],\s]|\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\])+"


def tasks_of_step(port_base: int) -> tuple[list[str], int]:
    """Returns each task's address, and this one's rank; raises what SlurmClusterResolver does."""
    names = ("PROCID", "NODEID", "STEP_NODELIST", "STEP_TASKS_PER_NODE")
    missing = [f"SLURM_{name}" for name in names if f"SLURM_{name}" not in os.environ]
    if missing:
        raise RuntimeError(
            f"the environment lacks {', '.join(missing)}: start the program by srun, which "
            "makes a process for each task"
        )
    rank, node, nodes, per_node = (os.environ[f"SLURM_{name}"] for name in names)
    try:
        hosts, counts = _hosts(nodes), _counts(per_node)
        places = dict(enumerate((i, n) for i, count in enumerate(counts) for n in range(count)))
        is_block = len(hosts) == len(counts) and places[int(rank)][0] == int(node)
    except (KeyError, TypeError, ValueError):
        given = ", ".join(f"SLURM_{name}={os.environ[f'SLURM_{name}']!r}" for name in names)
        raise RuntimeError(f"the environment is none that srun makes: {given}") from None
    if not isinstance(port_base, int) or not 0 < port_base <= (1 << 16) - max(counts):
        raise ValueError(
            f"port_base (--port) must leave {max(counts)} ports up to 65,535, one for each task "
            f"of a host, got {port_base!r}"
        )
    if not is_block:
        raise RuntimeError(
            f"the task of rank {rank} is on node {node} of {nodes!r} with {per_node!r} tasks, "
            "which are not in blocks of consecutive ranks: use srun --distribution=block"
        )
    return [f"{hosts[i]}:{port_base + n}" for i, n in places.values()], int(rank)


def _hosts(nodes: str) -> list[str]:
    """Returns the hosts of a list such as "n[08-10,12],a[1-2]b[3-4]", in Slurm's order."""
    if not re.fullmatch(_HOST + f"(,{_HOST})*", nodes):
        raise ValueError
    hosts: list[str] = []
    for host in re.findall(_HOST, nodes):
        parts = re.split(r"[\[\]]", host)  # every other one was in brackets
        choices = [_numbers(part) if i % 2 else [part] for i, part in enumerate(parts)]
        hosts += map("".join, itertools.product(*choices))
    return hosts


def _numbers(ranges: str) -> list[str]:
    """Returns "08", "09", "10" and "12" for "08-10,12"."""
    numbers = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        numbers += [f"{n:0{len(first)}}" for n in range(int(first), int(last or first) + 1)]
    return numbers


def _counts(per_node: str) -> list[int]:
    """Returns the tasks of each node, given a text such as "2(x3),1"."""
    matches: list[Any] = [re.fullmatch(r"(\d+)(\(x(\d+)\))?", n) for n in per_node.split(",")]
    return [int(match[1]) for match in matches for _ in range(int(match[3] or 1))]
