"""CompressedMirroredStrategy on GPUs: trains, and gives the CPU's bits."""

import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from tf_gc.launch.tasks import on_this_host
from tf_gc.ops.library import device_types
from tf_gc.reducers.wire import WIRES

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not tf.config.list_physical_devices("GPU"), reason="TensorFlow sees no GPU here"
    ),
    pytest.mark.timeout(900),
]
SCENARIOS = ["sums", "rows", "nothing", "defaults", "low_rank", "checkpoint"]


def command(scenario: str) -> list[str]:
    assert "GPU" in device_types(), "there is a GPU, and tf_gc was built for the CPU only"
    return [sys.executable, "-m", "tests.gpu.strategy_scenarios", scenario]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_two_gpus_or_two_halves_of_one(scenario: str) -> None:
    subprocess.run(command(scenario), cwd=ROOT, check=True)


def test_two_workers_that_share_a_gpu() -> None:
    workers = [
        subprocess.Popen(
            command("worker"),
            cwd=ROOT,
            env=task.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for task in on_this_host(2)
    ]
    logs = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(logs)
    first, second = (
        [line for line in log.splitlines() if line.startswith("weights:")] for log in logs
    )
    assert first == second
    assert first == first[:1] * len(WIRES)
