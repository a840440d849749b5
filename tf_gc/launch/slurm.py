"""The tasks of a Slurm job step, by the environment that `srun` makes."""

import os
import re
import subprocess


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
    hosts, counts = _hosts(nodes), _counts(per_node)
    if not isinstance(port_base, int) or not 0 < port_base <= (1 << 16) - max(counts):
        raise ValueError(
            f"port_base must leave {max(counts)} ports up to 65,535, one for each task of a "
            f"host, got {port_base!r}"
        )
    places = [(i, port) for i, count in enumerate(counts) for port in range(count)]
    if len(hosts) != len(counts) or places[int(rank)][0] != int(node):
        raise RuntimeError(
            f"the task of rank {rank} is on node {node} of {nodes!r} with {per_node!r} tasks, "
            "which are not in blocks of consecutive ranks: use srun --distribution=block"
        )
    return [f"{hosts[i]}:{port_base + port}" for i, port in places], int(rank)


def _hosts(nodes: str) -> list[str]:
    """Returns the hosts of a list such as "n[08-10],m1", in the order of Slurm's nodes."""
    if not re.search(r"[\[,]", nodes):
        return [nodes]
    command = ["scontrol", "show", "hostnames", nodes]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def _counts(per_node: str) -> list[int]:
    """Returns the tasks of each node, given a text such as "2(x3),1"."""
    counts = []
    for part in per_node.split(","):
        count, _, times = part.rstrip(")").partition("(x")
        counts += [int(count)] * int(times or 1)
    return counts
