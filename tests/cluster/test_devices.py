"""Devices that users name: what exists, once each, in every spelling."""

from typing import Any

import pytest
import tensorflow as tf

import tf_gc

CPUS = tf.config.list_logical_devices("CPU")
KNOWN = r"\['CPU:0', 'CPU:1', 'CPU:2', 'CPU:3'"


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ([], f"devices must name at least one device of {KNOWN}.*got \\[\\]"),
        ((), "devices must name at least one device"),
        (["CPU:0", "CPU:8"], f"there is no device 'CPU:8'; there are {KNOWN}"),
        (["/device:CPU:19"], "there is no device '/device:CPU:19'"),
        (["CPU:8"], r"9 CPU devices if .*set_logical_device_configuration\(.*\]\ \* 9\)"),
        (["CPU:0", "TPU:0"], "there is no device 'TPU:0'"),
        (["CPU:0", "nonsense"], "'nonsense' is no name of a device"),
        (["CPU:0", ""], "'' is no name of a device"),
        (["CPU:1", "CPU:1"], "'CPU:1' and 'CPU:1' are the same one"),
        (["CPU:1", "/cpu:1"], "'CPU:1' and '/cpu:1' are the same one"),
        (["cpu", "/device:CPU:0"], "'cpu' and '/device:CPU:0' are the same one"),
        ([CPUS[0], "CPU:0"], "'/device:CPU:0' and 'CPU:0' are the same one"),
        ([tf.config.LogicalDevice("/device:CPU:8", "CPU")], "no device '/device:CPU:8'"),
    ],
)
def test_wrong_devices_are_named(devices: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tf_gc.CompressedMirroredStrategy(devices)
    for other in ([*devices, 0], 3, "CPU:0"):
        with pytest.raises(TypeError, match=r"devices must be a list such as \["):
            tf_gc.CompressedMirroredStrategy(other)


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
    found = [tf.DeviceSpec.from_string(d) for d in strategy.extended.worker_devices]
    assert [(d.device_type, d.device_index) for d in found] == [("CPU", 0), ("CPU", 1)]
