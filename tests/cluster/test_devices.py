"""Devices that users name: what exists, once each, in every spelling."""

from typing import Any

import pytest
import tensorflow as tf

import tf_gc
from tests.conftest import REPLICAS

CPUS = tf.config.list_logical_devices("CPU")
KNOWN = r"\['CPU:0', 'CPU:1', 'CPU:2', 'CPU:3'"


@pytest.mark.parametrize(
    ("devices", "error", "message"),
    [
        ([], ValueError, f"devices must name at least one device of {KNOWN}.*got \\[\\]"),
        ((), ValueError, "devices must name at least one device"),
        (["CPU:0", "CPU:8"], ValueError, f"there is no device 'CPU:8'; there are {KNOWN}"),
        (["/device:CPU:19"], ValueError, "there is no device '/device:CPU:19'"),
        (
            ["CPU:8"],
            ValueError,
            r"9 CPU devices if .*set_logical_device_configuration\(.*\]\ \* 9\)",
        ),
        (["CPU:0", "TPU:0"], ValueError, "there is no device 'TPU:0'"),
        (["CPU:0", "nonsense"], ValueError, "'nonsense' is no name of a device"),
        (["CPU:0", ""], ValueError, "'' is no name of a device"),
        (["CPU:1", "CPU:1"], ValueError, "'CPU:1' and 'CPU:1' are the same one"),
        (["CPU:1", "/cpu:1"], ValueError, "'CPU:1' and '/cpu:1' are the same one"),
        (["cpu", "/device:CPU:0"], ValueError, "'cpu' and '/device:CPU:0' are the same one"),
        ([CPUS[0], "CPU:0"], ValueError, "'/device:CPU:0' and 'CPU:0' are the same one"),
        (
            ["CPU:0", tf.config.LogicalDevice("/device:CPU:8", "CPU")],
            ValueError,
            f"there is no device '/device:CPU:8'; there are {KNOWN}",
        ),
        ([0, 1], TypeError, r"devices must be a list such as \["),
        (3, TypeError, r"devices must be a list such as \[.* got 3"),
    ],
)
def test_wrong_devices_are_named(devices: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tf_gc.CompressedMirroredStrategy(devices)


@pytest.mark.parametrize(
    "devices",
    [
        ["CPU:0", "CPU:1"],
        ("/cpu:0", "/cpu:1"),
        ["cpu:0", "/device:CPU:1"],
        [f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)],
        [device.name for device in CPUS[:2]],
        CPUS[:2],
        ["CPU:0", CPUS[1]],
    ],
)
def test_all_spellings_work(devices: Any) -> None:
    strategy = tf_gc.CompressedMirroredStrategy(devices)
    assert strategy.num_replicas_in_sync == 2
    found = [tf.DeviceSpec.from_string(d) for d in strategy.extended.worker_devices]
    assert [(d.device_type, d.device_index) for d in found] == [("CPU", 0), ("CPU", 1)]


def test_all_devices_are_there() -> None:
    everything = [f"CPU:{i}" for i in range(REPLICAS)]
    assert tf_gc.CompressedMirroredStrategy(everything).num_replicas_in_sync == REPLICAS
