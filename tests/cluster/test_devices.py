"""Devices that users name: what exists, once each, in every spelling; what GPUs need."""

from typing import Any

import pytest
import tensorflow as tf

import tf_gc
from tests.strategies.helpers import cpus
from tf_gc.cluster.devices import check_devices
from tf_gc.network.group import LocalNetwork
from tf_gc.ops import library

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


MODULE = "tf_gc.cluster.devices"
ON_GPUS = LocalNetwork(["/device:GPU:0", "/device:GPU:1"])
ON_CPUS = LocalNetwork(["/device:CPU:0", "/device:CPU:1"])


def test_without_gpu_kernels_the_error_says_how_to_build_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{MODULE}.device_types", lambda: frozenset(["CPU"]))
    monkeypatch.setattr(f"{MODULE}.sees_gpus", lambda: False)
    with pytest.raises(ValueError, match=r"sees no GPU .*/device:GPU:1"):
        check_devices(tf_gc.TwoBit(), ON_GPUS)
    monkeypatch.setattr(f"{MODULE}.sees_gpus", lambda: True)
    with pytest.raises(ValueError, match="built for CPU only") as error:
        check_devices(tf_gc.TwoBit(), ON_GPUS)
    for part in ("GPU kernels", "CUDA_HOME", "TF_GC_CUDA=1", "-m pip install --force-reinstall"):
        assert part in str(error.value)
    one_gpu_each = LocalNetwork(["/device:GPU:0"])
    check_devices(tf_gc.TwoBit(), one_gpu_each)
    one_gpu_each.hosts = 2
    with pytest.raises(ValueError, match="built for CPU only"):
        check_devices(tf_gc.TwoBit(), one_gpu_each)
    check_devices(tf_gc.TwoBit(), ON_CPUS)


def test_kernels_are_needed_only_where_something_is_compressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # There is no GPU here: a build without CPU kernels stands for one without GPU kernels.
    monkeypatch.setattr(f"{MODULE}.device_types", lambda: frozenset(["GPU"]))
    tf_gc.CompressedMirroredStrategy(cpus(2), {"type": "none"})
    tf_gc.CompressedMirroredStrategy(cpus(1))
    tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params={"type": "none"})
    with pytest.raises(ValueError, match="built for GPU only"):
        tf_gc.CompressedMirroredStrategy(cpus(2))


def test_an_older_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (library.cuda_versions() is None) == ("GPU" not in library.device_types())
    monkeypatch.setattr(f"{MODULE}.device_types", lambda: frozenset(["CPU", "GPU"]))
    monkeypatch.setattr(f"{MODULE}.cuda_versions", lambda: (13000, 12040))
    with pytest.raises(ValueError, match=r"CUDA 13\.0, .* CUDA 12\.4\. Update the driver"):
        check_devices(tf_gc.TwoBit(), ON_GPUS)
    check_devices(tf_gc.TwoBit(), ON_CPUS)
    monkeypatch.setattr(f"{MODULE}.cuda_versions", lambda: (12090, 12040))
    check_devices(tf_gc.TwoBit(), ON_GPUS)
