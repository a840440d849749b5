"""The devices of a strategy: whether they exist, and whether the native ops can run on them."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.network.group import Network
from tf_gc.ops._loader import how_to_build
from tf_gc.ops.library import cuda_versions, device_types
from tf_gc.params import CompressionParams

_HOW_TO_BUILD_FOR_GPUS = (
    "The build needs nvcc: put it on PATH or set CUDA_HOME to its toolkit, and set TF_GC_CUDA=1, "
    "with which a build that cannot use it fails. "
)
_HOW_TO_HAVE_CPUS = (
    ". A program has {0} CPU devices if it calls tf.config.set_logical_device_configuration("
    'tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * {0}) '
    "before TensorFlow has run anything"
)


def sees_gpus() -> bool:
    """Whether TensorFlow has found a GPU on this machine."""
    return bool(tf.config.list_logical_devices("GPU"))


def check_device_names(devices: Any) -> None:
    """Raises an error if a user's `devices` are no devices of this machine, each once."""
    if devices is None:
        return
    is_list = isinstance(devices, Sequence) and not isinstance(devices, str)
    if not is_list or not all(isinstance(d, str | tf.config.LogicalDevice) for d in devices):
        raise TypeError(f'devices must be a list such as ["GPU:0", "GPU:1"], got {devices!r}')
    local = [_place(device.name) for device in tf.config.list_logical_devices()]
    known = [f"{kind}:{index}" for job, _, kind, index in local if kind in ("CPU", "GPU")]
    if not devices:
        raise ValueError(f"devices must name at least one device of {known}, got {devices!r}")
    seen: dict[Any, str] = {}
    for device in devices:
        name = device if isinstance(device, str) else device.name
        try:
            place = _place(name)
        except ValueError:
            raise ValueError(f"{name!r} is no name of a device; there are {known}") from None
        job, _, kind, index = place
        here = job in (None, "localhost")
        if here and (kind, index) not in [each[2:] for each in local]:
            none = " (TensorFlow sees no GPU)" if kind == "GPU" and not sees_gpus() else ""
            how = _HOW_TO_HAVE_CPUS.format(max(index + 1, len(devices))) if kind == "CPU" else ""
            raise ValueError(f"there is no device {name!r}{none}; there are {known}{how}")
        key = (kind, index) if here else place
        if key in seen:
            raise ValueError(
                f"devices must be different, and {seen[key]!r} and {name!r} are the same one; "
                f"there are {known}"
            )
        seen[key] = name


def _place(name: str) -> tuple[str | None, int | None, str | None, int]:
    """Returns job, task, kind and index of a device, which is the first of its kind by default."""
    spec = tf.DeviceSpec.from_string(name)
    if spec.device_type is None:
        raise ValueError(f"{name!r} names no device")
    return spec.job, spec.task, spec.device_type, spec.device_index or 0


def check_devices(params: CompressionParams, network: Network) -> None:
    """Raises ValueError, which says what to do, if native ops cannot run on a replica's device.

    A single replica needs none, and neither does a network in which nothing is compressed.
    """
    devices = network.devices
    native = any(spec.native for spec in params.specs())
    if not native or network.hosts * len(devices) == 1:
        return
    built = device_types()
    needed = {tf.DeviceSpec.from_string(device).device_type for device in devices}
    missing = sorted(needed - built)
    if "GPU" in missing and not sees_gpus():
        raise ValueError(
            f"TensorFlow sees no GPU on this machine, and {list(devices)} are asked for"
        )
    if missing:
        raise ValueError(
            f"tf_gc's native ops were built for {', '.join(sorted(built))} only, and the devices "
            f"{list(devices)} need {', '.join(missing)} kernels. "
            + (_HOW_TO_BUILD_FOR_GPUS + how_to_build() if missing == ["GPU"] else "")
        )
    versions = cuda_versions() if "GPU" in needed else None
    if versions is not None and versions[1] // 1000 < versions[0] // 1000:
        runtime, driver = (f"{number // 1000}.{number % 1000 // 10}" for number in versions)
        raise ValueError(
            f"tf_gc's GPU kernels were built with CUDA {runtime}, and this machine's driver is for "
            f"CUDA {driver}. Update the driver, or build with an older toolkit. "
            + _HOW_TO_BUILD_FOR_GPUS
            + how_to_build()
        )
