"""The wire: how codes travel from replica to replica. It never changes a result."""

import math

from tf_gc.codecs import Codec
from tf_gc.network.group import Network, is_cpu

# Each code takes the same number of bits.
PACKED = "packed"
# Frequent codes take fewer bits, in each column of a matrix by itself; packing and unpacking take
# time.
COMPACT = "compact"

WIRES = (PACKED, COMPACT)

# In bits per second, as `Network.rate` measures them: where the hosts send more slowly than this,
# the compact wire saves more time than it takes (docs/design.md).
COMPACT_BELOW = 1.0e9


def choose_wire(
    wire: str | None, codec: Codec, network: Network, why_not_packed: str | None = None
) -> tuple[str, str]:
    """Returns the wire that a user asks for, one of `WIRES`, and why, for the log.

    `None` is the one with which a step takes less time. To find out is a collective of all workers:
    they measure the rate at which CPUs send. GPUs may send by another network, so that for them
    `None` is the packed one. `why_not_packed` says why no CPU could pack the messages, if so. A
    wire that the codec or the devices cannot use is a ValueError.
    """
    if wire not in (None, PACKED):
        why = why_not_packed or _why_not_smaller(codec)
        if why:
            raise ValueError(
                f"wire={wire!r} is of no use here: {why}; the devices are "
                f"{list(network.devices)}, and wire may be {PACKED!r} or None"
            )
    if wire is not None:
        return wire, "as asked for"
    on_one_host = "all replicas are on one host" if network.hosts == 1 else None
    if refusal := _why_not_smaller(codec) or on_one_host or why_not_packed:
        return PACKED, refusal
    if not all(is_cpu(device) for device in network.devices):
        return PACKED, "the default of GPUs"
    rate = network.rate()
    if rate == math.inf:
        return PACKED, "all workers are on one machine"
    sends = f"the slowest worker sends {rate / 1e6:,.0f} Mbit/s,"
    if rate < COMPACT_BELOW:
        return COMPACT, f"{sends} < {COMPACT_BELOW / 1e6:,.0f}"
    return PACKED, f"{sends} >= {COMPACT_BELOW / 1e6:,.0f}"


def _why_not_smaller(codec: Codec) -> str | None:
    return None if codec.compacts else f"messages of {codec} do not get smaller"
