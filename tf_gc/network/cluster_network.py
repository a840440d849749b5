"""The replicas of all hosts, which reach each other by TensorFlow's collectives, and how fast."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_gc.network.collectives import CollectiveOps
from tf_gc.network.group import Group, cpu_of, is_cpu

# The bytes that a worker sends to each other one. Links that are shaped by a token bucket, as in
# many virtual machines, let the first bytes pass faster, and so the large message decides.
_SMALL, _LARGE = 1 << 18, 1 << 20
# How often the large message is sent. The fastest time counts: a worker may be busy with something
# else for a moment.
_TIMES = 3
# Seconds after which nothing more is sent. A slow link shows with few bytes.
_ENOUGH = 0.5


@dataclasses.dataclass(eq=False)
class ClusterNetwork:
    """The network of the plans, and what the workers tell each other.

    It holds no reference to the strategy, which would keep the strategy, and with it the residuals,
    alive until Python looks for cycles. `host_device` stands for this host where the workers tell
    each other something.
    """

    hosts: int
    devices: tuple[str, ...]
    host_device: str
    options: Any
    collective_keys: Any
    one_machine: bool = False

    def __post_init__(self) -> None:
        hosts, rest = self.hosts, (self.options, self.collective_keys, dict[str, Any]())
        self._collectives = functools.cache(
            lambda members: CollectiveOps(members, hosts * len(members), *rest)
        )
        # Workers of one machine have no link to measure.
        self._rate: float | None = math.inf if self.one_machine else None

    def collectives(self, devices: Sequence[str]) -> CollectiveOps:
        """Returns the collectives of some devices and their like on the other hosts."""
        return self._collectives(tuple(devices))

    def group(self, devices: Sequence[str]) -> Group:
        group = self.collectives(devices).group
        if len(devices) == 1 and not is_cpu(devices[0]):
            on_cpus = self.collectives([cpu_of(devices[0])]).group
            return dataclasses.replace(group, on_cpus=on_cpus)
        return group

    def rate(self) -> float:
        if self._rate is None:
            self._rate = bits_per_second(self.gather_from_hosts, self.hosts)
        return self._rate

    def gather_from_hosts(self, message: tf.Tensor) -> tf.Tensor:
        """Returns the int64 messages [1, words] of all hosts as [hosts, words]."""
        channel = self.collectives([self.host_device]).open(0, self.options)
        ((gathered,),) = channel.all_gather([message])
        return gathered


def large_message(workers: int) -> int:
    """Returns the bytes that a worker sends to each other one, which has those of all in memory."""
    return max(_SMALL, min(_LARGE, (8 << 20) // workers))


def bits_per_second(all_gather: Callable[[tf.Tensor], tf.Tensor], workers: int) -> float:
    """Returns the rate at which the slowest worker sends, the same number on all workers.

    All of them, 2 or more, call it. `all_gather` takes this worker's int64 tensor [1, n] and
    returns [workers, n]. It takes half a second, or longer if up to 1 MB to each of the other
    workers does.
    """

    def slowest(nanoseconds: int) -> float:
        return int(tf.reduce_max(all_gather(tf.constant([[nanoseconds]], tf.int64)))) / 1e9

    def seconds(size: int) -> float:
        message = tf.zeros([1, size // tf.int64.size], tf.int64)
        start = time.perf_counter_ns()
        int(all_gather(message)[-1, -1])  # waits until all is there
        return slowest(time.perf_counter_ns() - start)

    slowest(0)  # connects the workers, and lets them begin at the same time
    total = duration = seconds(_SMALL)
    size, large = _SMALL, large_message(workers)
    durations: list[float] = []
    while total < _ENOUGH and len(durations) < _TIMES:
        durations.append(seconds(large))
        total += durations[-1]
    if durations:
        size, duration = large, min(durations)
    return 8 * size * (workers - 1) / duration
