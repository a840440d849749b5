"""The wire: how codes travel from replica to replica. It never changes a result."""

import dataclasses

from tf_gc.codecs import Codec
from tf_gc.reduction.group import Network, is_cpu

# Each code takes the same number of bits.
PACKED = "packed"
# Frequent codes take fewer bits than rare ones; packing and unpacking take time.
COMPACT = "compact"

WIRES = (PACKED, COMPACT)

# In bits per second, as `Network.rate` measures them: where the hosts send more slowly than this,
# the compact wire saves more time than it takes (docs/decisions/compact-wire.md).
COMPACT_BELOW = 1.0e9


@dataclasses.dataclass(frozen=True)
class ChosenWire:
    """A wire, and why it was chosen.

    Attributes:
      name: one of `WIRES`.
      reason: for the log.
    """

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} wire: {self.reason}"


def choose_wire(wire: str | None, codec: Codec, network: Network) -> ChosenWire:
    """Returns the wire that a user asks for.

    Args:
      wire: one of `WIRES`, or `None` for the one with which a step takes less time. To find out is
        a collective of all workers: they measure the rate at which they send.
      codec: the codec.
      network: the replicas.

    Raises:
      ValueError: if the compact wire is asked for, and the codec or the devices cannot use it.
    """
    on_cpus = all(is_cpu(device) for device in network.devices)
    if wire == COMPACT and not on_cpus:
        raise ValueError(
            f"wire={COMPACT!r} has no kernels for GPUs yet, and the devices are "
            f"{list(network.devices)}: wire may be {PACKED!r} or None there"
        )
    if wire == COMPACT and not codec.compacts:
        raise ValueError(
            f"wire={COMPACT!r} is of no use for {codec}, whose messages do not get smaller: wire "
            f"may be {PACKED!r} or None"
        )
    if wire is not None:
        return ChosenWire(wire, "as asked for")
    if refusal := _why_not_compact(codec, network):
        return ChosenWire(PACKED, refusal)
    rate = network.rate()
    chosen, sign = (COMPACT, "<") if rate < COMPACT_BELOW else (PACKED, ">=")
    return ChosenWire(
        chosen,
        f"the slowest worker sends {rate / 1e6:,.0f} Mbit/s, {sign} {COMPACT_BELOW / 1e6:,.0f}",
    )


def possible_wires(codec: Codec, network: Network) -> tuple[str, ...]:
    """Returns the wires with which a step may take the least time."""
    return (PACKED,) if _why_not_compact(codec, network) else WIRES


def _why_not_compact(codec: Codec, network: Network) -> str | None:
    """Returns why the compact wire is of no use; `None` if it may be."""
    if not codec.compacts:
        return f"messages of {codec} do not get smaller"
    if not all(is_cpu(device) for device in network.devices):
        return "the compact wire has no kernels for GPUs yet"
    return "all replicas are on one host" if network.hosts == 1 else None
