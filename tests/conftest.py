"""Four logical CPU devices for every test process, and datasets that nobody tunes."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest
import tensorflow as tf

REPLICAS = 4


def pytest_configure() -> None:
    # Before anything starts TensorFlow's runtime, which fixes the devices.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * REPLICAS,
    )


@pytest.fixture(autouse=True)
def _untuned_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests import tuning

    tuning.turn_off(monkeypatch)
