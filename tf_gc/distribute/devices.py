"""Whether the native ops can run on the devices of a strategy."""

import tensorflow as tf

from tf_gc.ops._library import how_to_build
from tf_gc.ops.library import cuda_versions, device_types
from tf_gc.params import CompressionParams
from tf_gc.reduction.group import Network

_HOW_TO_BUILD_FOR_GPUS = (
    "The build needs nvcc: put it on PATH or set CUDA_HOME to its toolkit, and set TF_GC_CUDA=1, "
    "with which a build that cannot use it fails. "
)


def sees_gpus() -> bool:
    """Whether TensorFlow has found a GPU on this machine."""
    return bool(tf.config.list_logical_devices("GPU"))


def check_devices(params: CompressionParams, network: Network) -> None:
    """Raises ValueError if native ops are needed on a device on which they cannot run.

    The message says how to build them for it.

    Args:
      params: what is compressed; if that is nothing, no native ops are needed.
      network: the replicas; a single one needs no native ops.
    """
    devices = network.devices
    if not params.treatments() or network.hosts * len(devices) == 1:
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
