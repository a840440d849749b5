"""What the compressed strategies have in common."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_gc.codecs import Codec, MessageCodec
from tf_gc.distribute.all_reduce_gradients import Gradient, all_reduce_gradients
from tf_gc.distribute.cross_device_ops import CompressedAllReduce
from tf_gc.ops.two_bit import device_types
from tf_gc.reduction.exchange import Group
from tf_gc.reduction.plans import Plan, choose_plan
from tf_gc.reduction.traffic import Traffic
from tf_gc.residuals import CompressionState


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

    @property
    def _all_reduce(self) -> CompressedAllReduce:
        return self.extended.compressed_all_reduce


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


def check_devices(devices: Sequence[str]) -> None:
    """Raises ValueError if the native ops were not built for one of `devices`."""
    built = device_types()
    missing = sorted({tf.DeviceSpec.from_string(d).device_type for d in devices} - built)
    if missing:
        raise ValueError(
            f"tf_gc's native ops were built for {', '.join(sorted(built))} only, and the devices "
            f"{list(devices)} need {', '.join(missing)} kernels, which this build does not have. "
            "Use devices of another type."
        )
