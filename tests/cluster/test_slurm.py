"""Which workers a Slurm job step has, by the environment that `srun` makes.

`srun` itself is not there where the tests run; `sbatch examples/slurm.sbatch` tries all of it.
"""

import re
from collections.abc import Callable

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


@pytest.fixture(autouse=True)
def _no_scontrol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # as in a container


def test_hosts_keep_slurms_order_and_may_have_several_tasks(srun: Start) -> None:
    srun(1, 0, "n1", "2")
    assert addresses() == (["n1:8888", "n1:8889"], 1)
    srun(4, 2, "n[2,10],m1", "2(x2),1")
    assert addresses(700) == (["n2:700", "n2:701", "n10:700", "n10:701", "m1:700"], 4)


@pytest.mark.parametrize(
    ("nodes", "hosts"),
    [
        ("n[08-10,12],m1", ["n08", "n09", "n10", "n12", "m1"]),
        ("a[1-2]b[3-4]", ["a1b3", "a1b4", "a2b3", "a2b4"]),
        ("gpu-[001-002]-ib.x", ["gpu-001-ib.x", "gpu-002-ib.x"]),
    ],
)
def test_lists_of_hosts(srun: Start, nodes: str, hosts: list[str]) -> None:
    srun(0, 0, nodes, f"1(x{len(hosts)})")
    assert addresses()[0] == [f"{host}:8888" for host in hosts]


@pytest.mark.parametrize(
    "values",
    [
        *[(0, 0, nodes, "1") for nodes in ("", "n[1-", "n[a]", "n1,,n2", "n[1-2]]", "n1 n2")],
        *[(0, 0, "n1", counts) for counts in ("", "two", "-1", "1(x", "1,")],
        *[(rank, 0, "n1", "1") for rank in ("x", -1, 1)],
        (0, "x", "n1", "1"),
    ],
)
def test_what_srun_never_makes(srun: Start, values: tuple[object, ...]) -> None:
    srun(*values)
    shown = re.escape(f"SLURM_STEP_NODELIST={values[2]!r}, SLURM_STEP_TASKS_PER_NODE={values[3]!r}")
    with pytest.raises(RuntimeError, match=f"none that srun makes: .*{shown}"):
        addresses()


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
