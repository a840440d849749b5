"""How long a step takes: an alpha-beta model of the network, and what overlaps with what.

The model is that of Agarwal et al., "On the Utility of Gradient Compression in Distributed Training
Systems" (MLSys 2022), with three additions: a transport whose own work takes time for each
collective and each byte; the forward pass and the optimizer's update, which nothing overlaps with;
work before and after each transfer (encoding, decoding). All times are in seconds.
"""

import dataclasses
from collections.abc import Sequence

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
    """The links between workers, all alike, and what carries messages over them.

    Attributes:
      workers: how many there are, each on a host of its own.
      bits_per_second: the rate of a worker's link, in each direction.
      launch: seconds to start a collective.
      latency: seconds that a round of messages takes besides those for its bytes (alpha).
      byte: seconds that the transport takes for a byte, were the link infinitely fast.

    Raises:
      ValueError: if a number is out of range.
    """

    workers: int
    bits_per_second: float
    launch: float = LAUNCH
    latency: float = LATENCY
    byte: float = BYTE

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"workers must be at least 1, got {self.workers!r}")
        if not self.bits_per_second > 0:
            raise ValueError(f"bits_per_second must be positive, got {self.bits_per_second!r}")
        for name in ("launch", "latency", "byte"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0 seconds, got {getattr(self, name)!r}")

    def seconds(self, sent_bytes: float, rounds: int, collectives: int = 1) -> float:
        """Returns the time in which each worker sends so many bytes.

        Args:
          sent_bytes: what a worker sends to all others together.
          rounds: how many rounds of messages follow one another.
          collectives: how many collectives they belong to.
        """
        if self.workers == 1:
            return 0.0
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
    """What a step computes on one worker, besides compression.

    Attributes:
      forward: the forward pass.
      backward: backpropagation.
      update: the optimizer.
    """

    forward: float
    backward: float
    update: float

    @property
    def total(self) -> float:
        """The whole step of a worker that is alone."""
        return self.forward + self.backward + self.update

    def scaled(self, factor: float) -> "Compute":
        """Returns the same on a machine that takes `factor` times as long."""
        return Compute(factor * self.forward, factor * self.backward, factor * self.update)


@dataclasses.dataclass(frozen=True)
class Transfer:
    """What sums one bucket of gradients.

    Attributes:
      before: work of the processor before the bucket is sent: encoding.
      network: sending.
      after: work of the processor after that: decoding, adding up.
      early: whether the bucket is ready while backpropagation goes on. The bucket with the first
        variable never is.
    """

    before: float
    network: float
    after: float
    early: bool


def step_seconds(
    compute: Compute, transfers: Sequence[Transfer], slowdown: float = SLOWDOWN
) -> float:
    """Returns the time of a step.

    Early transfers overlap with backpropagation and with all other work of the processor; what
    takes longer counts. Late ones come after that:
    max(slowdown * T_comp, (k - 1) * T_comm(b)) + T_comm(last).

    Args:
      compute: what a worker computes.
      transfers: all that is sent; none if the worker is alone.
      slowdown: how much slower backpropagation is while something is sent (gamma); without early
        transfers nothing is.
    """
    early = [transfer for transfer in transfers if transfer.early]
    late = [transfer for transfer in transfers if not transfer.early]
    busy = compute.backward * (slowdown if early else 1)
    busy += sum(transfer.before for transfer in transfers)
    busy += sum(transfer.after for transfer in early)
    sending = sum(transfer.network for transfer in early)
    tail = sum(transfer.network + transfer.after for transfer in late)
    return compute.forward + max(busy, sending) + tail + compute.update
