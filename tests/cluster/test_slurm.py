"""Which workers a Slurm job step has, by the environment that `srun` makes.

`srun` itself is not there where the tests run; `sbatch examples/slurm.sbatch` tries all of it.
"""

from pathlib import Path

import pytest

import tf_gc
from tf_gc.cluster.slurm import worker_addresses


def environment(rank: int, node: int, nodes: str, tasks: str) -> dict[str, str]:
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_NODEID": str(node),
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_TASKS_PER_NODE": tasks,
    }


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that prints what Slurm's prints for one list."""
    program = tmp_path / "scontrol"
    program.write_text('#!/bin/sh\n[ "$3" = "n[2,10],m1" ] && printf "n2\\nn10\\nm1\\n"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def test_tasks_of_one_host() -> None:
    assert worker_addresses(environment(1, 0, "n1", "2"), 8888) == (["n1:8888", "n1:8889"], 1)


@pytest.mark.usefixtures("scontrol")
def test_hosts_keep_slurms_order_and_may_have_several_tasks() -> None:
    addresses, rank = worker_addresses(environment(4, 2, "n[2,10],m1", "2(x2),1"), 700)
    assert addresses == ["n2:700", "n2:701", "n10:700", "n10:701", "m1:700"]
    assert rank == 4


@pytest.mark.usefixtures("scontrol")
def test_tasks_that_are_not_in_blocks_are_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"rank 1 is on node 1 .* srun --distribution=block"):
        worker_addresses(environment(1, 1, "n[2,10],m1", "2(x2),1"), 700)


def test_without_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment(0, 0, "", ""):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_PROCID", "0")
    with pytest.raises(RuntimeError, match=r"lacks SLURM_NODEID.*start the program by srun"):
        tf_gc.SlurmClusterResolver()


@pytest.mark.parametrize("port", [0, -1, 65_535, 1.5, "8888"])
def test_a_port_that_is_none(port: object) -> None:
    with pytest.raises(ValueError, match=r"leave 2 ports up to 65,535.* got " + repr(port)):
        worker_addresses(environment(1, 0, "n1", "2"), port)  # type: ignore[arg-type]


def test_the_resolver_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(1, 0, "n1", "2").items():
        monkeypatch.setenv(name, value)
    resolver = tf_gc.SlurmClusterResolver(port_base=9000)
    assert resolver.cluster_spec().as_dict() == {"worker": ["n1:9000", "n1:9001"]}
    assert (resolver.task_type, resolver.task_id, resolver.rpc_layer) == ("worker", 1, "grpc")
