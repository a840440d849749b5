"""The replicas of all hosts, which reach each other by TensorFlow's collectives."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.network.collectives import CollectiveOps
from tf_gc.network.group import Group, cpu_of, is_cpu
from tf_gc.network.rate import bits_per_second


class ClusterNetwork:
    """The network of the plans, and what the workers tell each other.

    It holds no reference to the strategy, which would keep the strategy, and with it the residuals,
    alive until Python looks for cycles. `host_device` stands for this host where the workers tell
    each other something.
    """

    def __init__(
        self,
        hosts: int,
        devices: Sequence[str],
        host_device: str,
        options: Any,
        collective_keys: Any,
    ) -> None:
        self.hosts = hosts
        self.devices = tuple(devices)
        self._host_device = host_device
        self._options = options
        tokens: dict[str, Any] = {}
        self._collectives = functools.cache(
            lambda members: CollectiveOps(
                members, hosts * len(members), options, collective_keys, tokens
            )
        )
        self._groups: dict[tuple[str, ...], Group] = {}
        self._rate: float | None = None

    def collectives(self, devices: Sequence[str]) -> CollectiveOps:
        """Returns the collectives of some devices and their like on the other hosts."""
        return self._collectives(tuple(devices))

    def group(self, devices: Sequence[str]) -> Group:
        members = tuple(devices)
        if members not in self._groups:
            group = self.collectives(members).group()
            if len(members) == 1 and not is_cpu(members[0]):
                on_cpus = self.collectives([cpu_of(members[0])]).group()
                group = dataclasses.replace(group, on_cpus=on_cpus)
            self._groups[members] = group
        return self._groups[members]

    def rate(self) -> float:
        if self._rate is None:
            self._rate = bits_per_second(self.gather_from_hosts, self.hosts)
        return self._rate

    def gather_from_hosts(self, message: tf.Tensor) -> tf.Tensor:
        """Returns the int64 messages [1, words] of all hosts as [hosts, words]."""
        channel = self.collectives([self._host_device]).open(0, self._options)
        ((gathered,),) = channel.all_gather([message])
        return gathered
