"""What the compressed strategies have in common."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_gc.codecs import Codec, MessageCodec
from tf_gc.distribute.all_reduce_gradients import Gradient, all_reduce_gradients
from tf_gc.distribute.cross_device_ops import CompressedAllReduce
from tf_gc.distribute.layer_state import LayerState
from tf_gc.ops._library import how_to_build
from tf_gc.ops.two_bit import cuda_versions, device_types
from tf_gc.reduction.exchange import Group
from tf_gc.reduction.plans import Plan, choose_plan
from tf_gc.reduction.traffic import Traffic
from tf_gc.residuals import CompressionState

_HOW_TO_BUILD_FOR_GPUS = (
    "The build needs nvcc: put it on PATH or set CUDA_HOME to its toolkit, and set TF_GC_CUDA=1, "
    "with which a build that cannot use it fails. "
)


class CompressedStrategy:
    """Mixin of strategies whose `extended` has a `compressed_all_reduce`."""

    extended: Any

    @property
    def codec(self) -> Codec:
        """The codec that `compression_params` stands for."""
        return self._all_reduce.codec

    @property
    def compression_state(self) -> CompressionState:
        """The residuals; trackable, so it can go into a `tf.train.Checkpoint`."""
        return self._all_reduce.compression_state

    @property
    def traffic(self) -> Traffic | None:
        """What a replica sends per step; `None` until a step with compression was traced."""
        return self._all_reduce.traffic

    def sum_gradients(self, grads_and_vars: Sequence[tuple[Gradient, Any]]) -> list[Gradient]:
        """The hook's entry: see `tf_gc.all_reduce_gradients`."""
        return all_reduce_gradients(grads_and_vars)

    def keep_layer_state(self, weight: keras.Variable) -> None:
        """The hook's entry: see `tf_gc.keras.layer_state`."""
        if self.extended.layer_state is not None:
            self.extended.layer_state.add(weight)

    def note_assignment(self, weight: keras.Variable) -> None:
        """The hook's entry: see `tf_gc.keras.layer_state`."""
        if self.extended.layer_state is not None:
            self.extended.layer_state.note_assignment(weight)

    @property
    def _all_reduce(self) -> CompressedAllReduce:
        return self.extended.compressed_all_reduce


def layer_state(codec: Codec, average: bool | None) -> LayerState | None:
    """Returns what a strategy averages of its layers' state, `None` for nothing.

    Args:
      codec: the strategy's codec.
      average: the argument `average_layer_state`; `None` averages unless nothing is compressed.

    Raises:
      ValueError: if `average` is none of `None`, `True` and `False`.
    """
    if average is not None and not isinstance(average, bool):
        raise ValueError(f"average_layer_state must be None, True or False, got {average!r}")
    if average is None:
        average = isinstance(codec, MessageCodec)
    return LayerState() if average else None


def make_plan(
    codec: Codec, hosts: int, devices: Sequence[str], group: Callable[[Sequence[str]], Group]
) -> Plan | None:
    """Returns the plan of a strategy, `None` if its codec has no messages.

    Args:
      codec: the codec.
      hosts: the number of hosts.
      devices: the devices of this host's replicas.
      group: makes the group of the given devices of each host.

    Raises:
      ValueError: if the codec asks for a plan that is none for these hosts and devices.
    """
    if not isinstance(codec, MessageCodec):
        return None
    name = choose_plan(codec, hosts, devices)
    members = [[device] for device in devices] if name == "hierarchical" else [devices]
    return Plan(name, tuple(devices), tuple(group(devices) for devices in members))


def check_devices(codec: Codec, devices: Sequence[str], hosts: int = 1) -> None:
    """Raises ValueError if a strategy needs native ops that cannot run on one of its devices.

    The message says how to build them for it.

    Args:
      codec: the codec; one without messages needs no native ops.
      devices: the devices of this host's replicas; a single replica needs no native ops.
      hosts: the number of hosts.
    """
    if not isinstance(codec, MessageCodec) or hosts * len(devices) == 1:
        return
    built = device_types()
    needed = {tf.DeviceSpec.from_string(device).device_type for device in devices}
    missing = sorted(needed - built)
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
