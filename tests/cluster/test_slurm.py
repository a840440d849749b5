"""Which workers a Slurm job step has, by the environment that `srun` makes.

`srun` itself is not there where the tests run; `sbatch examples/slurm.sbatch` tries all of it.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

import tf_gc

NAMES = ("PROCID", "NODEID", "STEP_NODELIST", "STEP_TASKS_PER_NODE")
Start = Callable[..., None]


@pytest.fixture
def srun(monkeypatch: pytest.MonkeyPatch) -> Start:
    """Makes the environment of a task: its rank, its host's number, all hosts, tasks of each."""

    def start(*values: object) -> None:
        for name, value in zip(NAMES, values, strict=True):
            monkeypatch.setenv(f"SLURM_{name}", str(value))

    return start


def addresses(port_base: object = 8888) -> tuple[list[str], int]:
    resolver = tf_gc.SlurmClusterResolver(port_base)  # type: ignore[arg-type]
    assert (resolver.task_type, resolver.rpc_layer) == ("worker", "grpc")
    return resolver.cluster_spec().as_dict()["worker"], resolver.task_id


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that prints what Slurm's prints for one list."""
    program = tmp_path / "scontrol"
    program.write_text('#!/bin/sh\n[ "$3" = "n[2,10],m1" ] && printf "n2\\nn10\\nm1\\n"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


@pytest.mark.usefixtures("scontrol")
def test_hosts_keep_slurms_order_and_may_have_several_tasks(srun: Start) -> None:
    srun(1, 0, "n1", "2")
    assert addresses() == (["n1:8888", "n1:8889"], 1)
    srun(4, 2, "n[2,10],m1", "2(x2),1")
    assert addresses(700) == (["n2:700", "n2:701", "n10:700", "n10:701", "m1:700"], 4)


@pytest.mark.usefixtures("scontrol")
def test_tasks_that_are_not_in_blocks_are_an_error(srun: Start) -> None:
    srun(1, 1, "n[2,10],m1", "2(x2),1")
    with pytest.raises(RuntimeError, match=r"rank 1 is on node 1 .* srun --distribution=block"):
        addresses()


def test_without_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(f"SLURM_{name}", raising=False)
    monkeypatch.setenv("SLURM_PROCID", "0")
    with pytest.raises(RuntimeError, match=r"lacks SLURM_NODEID.*start the program by srun"):
        addresses()


@pytest.mark.parametrize("port", [0, -1, 65_535, 1.5, "8888"])
def test_a_port_that_is_none(srun: Start, port: object) -> None:
    srun(1, 0, "n1", "2")
    with pytest.raises(ValueError, match=r"leave 2 ports up to 65,535.* got " + repr(port)):
        addresses(port)
