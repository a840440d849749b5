"""How long a step takes: an alpha-beta model of the network, and what overlaps with what.

The model is by Agarwal et al., "On the Utility of Gradient Compression in Distributed Training
Systems" (MLSys 2022), with three additions: a transport whose own work takes time for each
collective and each byte; the forward pass and the optimizer's update, which nothing overlaps with;
the work of compressing. All times are in seconds.
"""

import dataclasses

# How much slower backpropagation is while something is sent; Agarwal et al. found 1.04 to 1.1.
SLOWDOWN = 1.07

# Seconds of a core that TensorFlow's collectives over gRPC take, as fitted to recorded steps
# (benchmarks/results/planner.json): to start one, for each of its rounds, for each byte that a
# worker sends while it receives as many.
LAUNCH = 2.2e-3
LATENCY = 0.34e-3
BYTE = 2.4e-9

# Of 1538 bytes that a full Ethernet frame occupies on a link (preamble and gap included), 1448 are
# payload of TCP over IPv4 with timestamps (IEEE 802.3, RFC 9293, RFC 7323).
_PAYLOAD = 1448 / 1538


@dataclasses.dataclass(frozen=True)
class Link:
    """The links between workers, each on a host of its own, and the transport over them.

    The rate is a worker's, in each direction. The transport takes `launch` seconds to start a
    collective, `latency` (alpha) for a round of messages besides the seconds for its bytes, and
    `byte` for a byte, were the link infinitely fast.
    """

    workers: int
    bits_per_second: float
    launch: float = LAUNCH
    latency: float = LATENCY
    byte: float = BYTE

    def seconds(self, sent_bytes: float, rounds: int, collectives: int = 1) -> float:
        """Returns the time in which each worker sends all others these bytes together.

        The rounds of messages follow one another.
        """
        on_link = 8 / (_PAYLOAD * self.bits_per_second)
        starts = self.launch * collectives + self.latency * rounds
        return starts + sent_bytes * (on_link + self.byte)

    def all_reduce(self, size: float) -> float:
        """Returns the time of a ring all-reduce of `size` bytes (Patarasuk, Yuan 2009)."""
        others = self.workers - 1
        return self.seconds(2 * size * others / self.workers, 2 * others)

    def all_gather(self, size: float) -> float:
        """Returns the time of an all-gather of `size` bytes from each worker."""
        others = self.workers - 1
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
