"""How long a step takes: an alpha-beta model of the network, and what overlaps with what.

The model is by Agarwal et al., "On the Utility of Gradient Compression in Distributed Training
Systems" (MLSys 2022), with three additions: a transport whose own work takes time for each
collective and each byte; the forward pass and the optimizer's update, which nothing overlaps with;
the work of compressing. All times are in seconds.
"""

import dataclasses
import math

# How much slower backpropagation is while something is sent; Agarwal et al. found 1.04 to 1.1.
SLOWDOWN = 1.07

# Seconds that a transport takes. "grpc": of a core, by TensorFlow's collectives, as fitted to
# recorded steps (benchmarks/results/planner.json). "nccl": the latencies by which NCCL 2.7.5
# chooses an algorithm (src/graph/tuning.cc there: rings and trees over a network, protocol Simple),
# which nobody measured here.
TRANSPORTS = {
    "grpc": {"launch": 2.2e-3, "latency": 0.34e-3, "byte": 2.4e-9},
    "nccl": {"launch": 8.4e-6, "latency": 9.6e-6, "byte": 0.0, "level": 50e-6},
}

# Of 1538 bytes that a full Ethernet frame occupies on a link (preamble and gap included), 1448 are
# payload of TCP over IPv4 with timestamps (IEEE 802.3, RFC 9293, RFC 7323).
_PAYLOAD = 1448 / 1538


@dataclasses.dataclass(frozen=True)
class Link:
    """The links between workers, each on a host of its own, and the transport over them.

    The rate is a worker's, in each direction; of a single worker the one inside its host.
    The transport takes `launch` seconds to start a collective, `latency` (alpha) for a round of
    messages besides the seconds for its bytes, `byte` for a byte, were the link infinitely fast,
    and `level` for each level of a tree, by which it all-reduces where a ring takes longer. Each of
    the `gpus` of a worker, a replica, takes `host_byte` seconds to send a byte within the host.
    """

    workers: int
    bits_per_second: float
    launch: float = TRANSPORTS["grpc"]["launch"]
    latency: float = TRANSPORTS["grpc"]["latency"]
    byte: float = TRANSPORTS["grpc"]["byte"]
    level: float = math.inf
    gpus: int = 1
    host_byte: float = 0.0

    @property
    def replicas(self) -> int:
        """How many replicas all workers have."""
        return self.workers * self.gpus

    def seconds(self, sent: float, rounds: int, collectives: int = 1, in_host: float = 0) -> float:
        """Returns the time in which each worker sends all others these bytes together.

        The rounds of messages follow one another. Before and after them, each GPU sends `in_host`
        bytes to those of its host.
        """
        starts = self.launch * collectives + self.latency * rounds
        if self.workers == 1:
            return starts + (sent + in_host) * 8 / self.bits_per_second
        on_link = 8 / (_PAYLOAD * self.bits_per_second) + self.byte
        slowest = max(on_link, self.host_byte)  # a ring also passes through the host
        return starts + sent * slowest + in_host * self.host_byte

    def all_reduce(self, size: float) -> float:
        """Returns the time of an all-reduce of `size` bytes.

        It goes by a ring (Patarasuk, Yuan 2009), which enters each host once, or by a tree, which
        reaches 0.9 of its rate (NCCL, as above).
        """
        others = self.replicas - 1
        ring = self.seconds(2 * size * others / self.replicas, 2 * others)
        tree = self.seconds(2 * size / 0.9, 0) + self.level * 2 * math.log2(self.replicas)
        return min(ring, tree)

    def all_gather(self, size: float) -> float:
        """Returns the time of an all-gather of `size` bytes from each replica."""
        others = self.replicas - 1
        return self.seconds(size * others, others)


@dataclasses.dataclass(frozen=True)
class Compute:
    """Seconds of a step on one worker: forward pass, backpropagation, the optimizer's update."""

    forward: float
    backward: float
    update: float

    @property
    def total(self) -> float:
        """The whole step of a worker that is alone."""
        return self.forward + self.backward + self.update


def step_seconds(
    compute: Compute, early: float, late: float, work: float = 0.0, slowdown: float = SLOWDOWN
) -> float:
    """Returns the time of a step.

    Early transfers, of buckets that are ready while backpropagation goes on, overlap with it and
    with encoding, decoding and adding up (`work`); what takes longer counts. Late ones, of which
    the bucket with the first variable always is one, come after that:
    max(slowdown * T_comp, (k - 1) * T_comm(b)) + T_comm(last).
    """
    busy = compute.backward * (slowdown if early else 1) + work
    return compute.forward + max(busy, early) + late + compute.update
