"""CompressedMirroredStrategy on GPUs: trains, and gives the CPU's bits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from tf_gc.ops.library import device_types

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not tf.config.list_physical_devices("GPU"), reason="TensorFlow sees no GPU here"
    ),
    pytest.mark.timeout(900),
]


@pytest.mark.parametrize("scenario", ["sums", "fit"])
def test_two_gpus_or_two_halves_of_one(scenario: str) -> None:
    assert "GPU" in device_types(), "there is a GPU, and tf_gc was built for the CPU only"
    run = subprocess.run(
        [sys.executable, "-m", "tests.gpu.strategy_scenarios", scenario],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
