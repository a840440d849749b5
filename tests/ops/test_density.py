"""A fixed threshold that sends next to nothing is pointed out, once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fork_server import FORK_SERVER, Task


def encode_steps(*arguments: str) -> None:
    """Encodes the same gradients again and again, for two replicas."""
    import tensorflow as tf

    from tf_gc.ops import two_bit_encode

    threshold, step, steps, shards = map(float, arguments)
    gradients = [tf.fill([30_000], step), tf.fill([300], 10 * step)]
    residuals = [[tf.Variable(tf.zeros_like(g)) for g in gradients] for _ in range(2)]

    @tf.function
    def encode() -> None:
        for replica in residuals:
            two_bit_encode(gradients, replica, threshold, shards=int(shards))

    for _ in range(int(steps)):
        encode()


@pytest.fixture
def warnings_of(tmp_path: Path) -> Callable[..., list[str]]:
    """The warnings of a process that encodes."""

    def run(*arguments: float) -> list[str]:
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1"}
        log = tmp_path / "log"
        task = Task(f"{__name__}:encode_steps", [*map(str, arguments)], environment, str(log))
        codes, _ = FORK_SERVER.run([task], limit=600)
        lines = log.read_text().splitlines()
        assert codes == [0], lines
        return [line for line in lines if "tf_gc: threshold" in line]

    return run


def density(line: str) -> tuple[int, float]:
    """The elements sent, and the density, after checking what else a warning says."""
    found = re.search(
        r"threshold 0.5 sent (\d+) of (\d+) gradient elements in the first 100 steps "
        r'\(density ([\d.e-]+)\).*threshold="auto"',
        line,
    )
    assert found, line
    # The kernel of one replica may have been through before the other's last step.
    assert 199 * 30_300 <= int(found[2]) <= 200 * 30_300
    assert float(found[3]) == pytest.approx(int(found[1]) / int(found[2]), rel=1e-4)
    return int(found[1]), float(found[3])


@pytest.mark.parametrize("shards", [1, 3])
def test_one_warning_names_the_density(warnings_of: Callable[..., list[str]], shards: int) -> None:
    # The largest residual is 100 * 10 * 0.00004 by then.
    (line,) = warnings_of(0.5, 0.00004, 250, shards)
    assert density(line)[0] == 0


def test_the_density_is_that_of_plus_and_minus(warnings_of: Callable[..., list[str]]) -> None:
    (line,) = warnings_of(0.5, -0.0006, 100, 1)  # the second tensor is sent once, by each replica
    assert density(line)[0] == 600


@pytest.mark.parametrize(("step", "steps"), [(0.0012, 100), (0.00004, 99)])
def test_no_warning_if_enough_is_sent_or_it_is_early(
    warnings_of: Callable[..., list[str]], step: float, steps: int
) -> None:
    assert warnings_of(0.5, step, steps, 1) == []
