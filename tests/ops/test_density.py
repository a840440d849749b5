"""A fixed threshold that sends next to nothing is pointed out, once."""

import os
import re

import pytest

from tests.fork_server import FORK_SERVER


def encode_steps(*arguments: str) -> None:
    """Encodes the same gradients again and again, for two replicas of two models in turn."""
    import tensorflow as tf

    from tf_gc.ops import two_bit_encode

    threshold, step, steps, shards = map(float, arguments)
    gradients = [tf.fill([30_000], step), tf.fill([300], 10 * step)]
    residuals = [[tf.Variable(tf.zeros_like(g)) for g in gradients] for _ in range(2)]

    def encode() -> None:
        for replica in residuals:
            two_bit_encode(gradients, replica, threshold, shards=int(shards))

    for model in (tf.function(encode), tf.function(encode)):
        for _ in range(int(steps)):
            model()


def warnings_of(*arguments: float) -> list[str]:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1"}
    task = f"{__name__}:encode_steps"
    output = FORK_SERVER.output(task, *map(str, arguments), environment=environment)
    return [line for line in output.splitlines() if "tf_gc: threshold" in line]


@pytest.mark.parametrize(
    ("step", "steps", "shards", "sent"),
    [
        *((0.00004, 250, shards, 0) for shards in (1, 3)),
        (-0.0006, 100, 1, 600),  # the second tensor is sent once, by each replica
    ],
)
def test_one_warning_names_the_density(step: float, steps: int, shards: int, sent: int) -> None:
    (line,) = warnings_of(0.5, step, steps, shards)
    found = re.search(
        r"threshold 0.5 sent (\d+) of (\d+) gradient elements in the first 100 steps "
        r'\(density ([\d.e-]+)\).*threshold="auto"',
        line,
    )
    assert found, line
    # The kernel of one replica may have been through before the other's last step.
    assert 199 * 30_300 <= int(found[2]) <= 200 * 30_300
    assert float(found[3]) == pytest.approx(sent / int(found[2]), rel=1e-4)
    assert int(found[1]) == sent


@pytest.mark.parametrize(("step", "steps"), [(0.0012, 100), (0.00004, 99)])
def test_no_warning_if_enough_is_sent_or_it_is_early(step: float, steps: int) -> None:
    assert warnings_of(0.5, step, steps, 1) == []
