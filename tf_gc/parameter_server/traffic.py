"""Traffic: how many bytes a worker and the servers send each other in a step of the worker."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Sent:
    """Bytes of one direction, and the bytes that the stock strategy sends, each variable once.

    Where only the step knows how small a message gets, `bytes` is the most that it may be.
    """

    bytes: int = 0
    stock_bytes: int = 0

    def __add__(self, other: "Sent") -> "Sent":
        return Sent(self.bytes + other.bytes, self.stock_bytes + other.stock_bytes)


@dataclasses.dataclass(frozen=True)
class ServerTraffic:
    """The bytes of a step of one worker, after its warm-up and its first pulls.

    A worker pushes gradients to the servers and pulls variables from them. Rows of tables, whose
    number only the step knows, are left out on both sides.
    """

    pushed: Sent
    pulled: Sent

    @property
    def sent_bytes(self) -> int:
        """Sent in both directions."""
        return (self.pushed + self.pulled).bytes

    @property
    def stock_bytes(self) -> int:
        """Sent in both directions by the stock strategy."""
        return (self.pushed + self.pulled).stock_bytes

    @property
    def ratio(self) -> float:
        """`stock_bytes` divided by `sent_bytes`."""
        return self.stock_bytes / self.sent_bytes if self.sent_bytes else 1.0

    def __str__(self) -> str:
        return (
            f"a worker pushes {self.pushed.bytes:,} bytes a step instead of "
            f"{self.pushed.stock_bytes:,}, and pulls {self.pulled.bytes:,} instead of "
            f"{self.pulled.stock_bytes:,}, after its first steps"
        )

    __repr__ = __str__  # which notebooks show


def full_bytes(variable: Any, dtype: Any = None) -> int:
    """Returns the bytes of a variable, or of its gradient of a dtype, in full precision."""
    return int(variable.shape.num_elements() or 0) * int((dtype or variable.dtype).size)
