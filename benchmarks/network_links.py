"""The links between worker processes: network namespaces shaped to a rate.

Every worker has a namespace with one interface, and a bridge in a namespace of its own joins
them, as a switch does hosts. Namespaces, and the bridge with them, vanish with `close()`; nothing
outside of them is changed. This needs Linux, root, `ip` and `tc`.

A link is shaped at both of its ends, so that its rate holds for each direction (`tbf`, a token
bucket). A bucket holds 80 kB or, if that is more, what the rate carries in 0.2 ms: more than the
64 kB that TCP hands over at once, which then pass whole, as to a network card that cuts them
itself, and enough for 10 Gbit/s in spite of late timers. That much may go faster than the rate
after a pause.
"""

import json
import os
import re
import shutil
import subprocess

UNSHAPED = "none"

# Bytes of a packet besides its data: Ethernet, IPv4, and TCP with its timestamps.
HEADER_BYTES = 14 + 20 + 32
# Bytes of data in a segment of TCP on Ethernet: 1500 without the headers above Ethernet's.
SEGMENT_BYTES = 1500 - 20 - 32

_PREFIX = "tfgc-"
_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def bits_per_second(rate: str) -> float | None:
    """Returns what a rate such as "100mbit" says, `None` for "none".

    Raises:
      ValueError: if it is neither.
    """
    if rate == UNSHAPED:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", rate)
    if not match or not float(match[1]):
        raise ValueError(f'a rate is "none" or like "100mbit" (kbit, mbit, gbit), got {rate!r}')
    return float(match[1]) * _UNITS[match[2]]


def label(rate: str) -> str:
    """Returns a rate for people, such as "100 Mbit/s"."""
    speed = bits_per_second(rate)
    if speed is None:
        return "not shaped"
    return f"{speed / 1e9:g} Gbit/s" if speed >= 1e9 else f"{speed / 1e6:g} Mbit/s"


def why_not_shaped() -> str | None:
    """Returns why this process cannot shape links, `None` if it can try."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "not root"
    missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
    return f"no {' and no '.join(missing)} (iproute2)" if missing else None


class Links:
    """Workers in network namespaces, each with a link of its own to a bridge."""

    description = "network namespaces joined by a bridge, tbf at both ends of each link"
    interface = "eth0"  # of each worker, in its namespace

    def __init__(self, workers: int) -> None:
        """Sets up unshaped links.

        Raises:
          RuntimeError: if the system does not let us, or an earlier run left namespaces behind.
        """
        # The addresses exist in the namespaces only, and so cannot meet others.
        self.addresses = [f"10.77.0.{worker + 1}" for worker in range(workers)]
        self._names = [f"{_PREFIX}{os.getpid()}-{worker}" for worker in range(workers)]
        self._switch = f"{_PREFIX}{os.getpid()}-switch"
        self._shaped = False
        self._next_port = 20000
        _refuse_leftovers()
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Links":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _set_up(self) -> None:
        switch = self._switch
        _call("ip", "netns", "add", switch)
        _call("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _call("ip", "-n", switch, "link", "set", "bridge", "up")
        for worker, name in enumerate(self._names):
            port = f"port{worker}"
            _call("ip", "netns", "add", name)
            _call(
                *("ip", "-n", switch, "link", "add", port, "type", "veth"),
                *("peer", "name", self.interface, "netns", name),
            )
            _call("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
            _call("ip", "-n", name, "link", "set", "lo", "up")  # a worker calls itself, too
            _call("ip", "-n", name, "link", "set", self.interface, "up")
            address = f"{self.addresses[worker]}/24"
            _call("ip", "-n", name, "address", "add", address, "dev", self.interface)

    def close(self) -> None:
        """Removes the namespaces. Processes in them have to have ended."""
        for name in [*self._names, self._switch]:
            if name in _namespaces():
                _call("ip", "netns", "delete", name)

    def prefix(self, worker: int) -> list[str]:
        """Returns what starts a command at a worker's end."""
        return ["ip", "netns", "exec", self._names[worker]]

    def with_ports(self) -> list[str]:
        """Returns the address of each worker with a port that nobody listens on."""
        self._next_port += 1
        return [f"{address}:{self._next_port}" for address in self.addresses]

    def set_rate(self, rate: str) -> None:
        """Gives each direction of each link a rate such as "100mbit", or "none"."""
        speed = bits_per_second(rate)
        ends = [(name, self.interface) for name in self._names]
        ends += [(self._switch, f"port{worker}") for worker in range(len(self._names))]
        for namespace, device in ends:
            at = ("dev", device, "root")
            if speed is not None:
                burst = max(80_000, round(speed / 8 * 0.2e-3))
                shape = ("tbf", "rate", f"{speed:.0f}bit", "burst", str(burst), "latency", "50ms")
                _call("tc", "-n", namespace, "qdisc", "replace", *at, *shape)
            elif self._shaped:
                _call("tc", "-n", namespace, "qdisc", "delete", *at)
        self._shaped = speed is not None

    def set_up(self, worker: int, up: bool) -> None:
        """Cuts a worker's link, or joins it again."""
        state = "up" if up else "down"
        _call("ip", "-n", self._switch, "link", "set", f"port{worker}", state)

    def sent(self) -> list[tuple[int, int, int]]:
        """Returns the bytes, packets and repeated segments that each worker has sent.

        Bytes and packets are counted where its link ends. Each packet has a header, but Linux hands
        over up to 64 kB with one header, which a network card would cut into frames with one each.
        Where many send to one, its link drops packets, and TCP repeats segments of
        `SEGMENT_BYTES`, which are among the bytes.
        """
        links = json.loads(_call("ip", "-n", self._switch, "-s", "-j", "link", "show"))
        received = {link["ifname"]: link["stats64"]["rx"] for link in links}
        ports = [received[f"port{worker}"] for worker in range(len(self._names))]
        repeated = [
            _retransmitted(_call(*self.prefix(worker), "cat", "/proc/net/snmp"))
            for worker in range(len(self._names))
        ]
        return [
            (port["bytes"], port["packets"], again)
            for port, again in zip(ports, repeated, strict=True)
        ]


def _retransmitted(snmp: str) -> int:
    """Returns how many segments TCP has sent again, from the text of /proc/net/snmp."""
    names, values = (line.split() for line in snmp.splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("RetransSegs")])


def _refuse_leftovers() -> None:
    found = [name for name in _namespaces() if name.startswith(_PREFIX)]
    if found:
        commands = "\n".join(f"  ip netns delete {name}" for name in found)
        raise RuntimeError(
            "another run is in progress, or one that was killed left its network namespaces "
            f"behind; in the latter case remove them:\n{commands}"
        )


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _call("ip", "netns", "list").splitlines() if line]


def _call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout
