"""Traffic: what a step's reduction of the gradients sends."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Bytes that the gradients of one step take on the wire, for each replica.

    Attributes:
      plan: who sends what to whom: "all_gather", "scatter_gather" or "hierarchical".
      replicas: number of replicas that take part.
      buckets: number of messages that the compressed gradients travel in.
      compressed_tensors: gradients that are sent encoded.
      bypassed_tensors: gradients that take the stock path.
      sent_bytes: what a replica sends in a step, bypassed gradients included.
      stock_bytes: what it would send if all gradients took the stock path. Sparse gradients
        (`tf.IndexedSlices`), whose rows are gathered, count as large as their variables where
        the number of rows is not known before the step.
    """

    plan: str
    replicas: int
    buckets: int
    compressed_tensors: int
    bypassed_tensors: int
    sent_bytes: int
    stock_bytes: int

    @property
    def ratio(self) -> float:
        """Bytes of the stock path over bytes sent."""
        return self.stock_bytes / self.sent_bytes if self.sent_bytes else 1.0

    def __str__(self) -> str:
        return (
            f"{self.plan} among {self.replicas} replicas, {self.buckets} buckets with "
            f"{self.compressed_tensors} tensors, {self.bypassed_tensors} tensors bypassed; a "
            f"replica sends {self.sent_bytes:,} bytes a step instead of {self.stock_bytes:,}"
        )


def all_reduce_bytes(size: int, replicas: int) -> int:
    """Bytes a replica sends in a ring all-reduce of `size` bytes (Patarasuk, Yuan 2009)."""
    return 2 * (replicas - 1) * size // replicas


def all_gather_bytes(size: int, replicas: int) -> int:
    """Bytes a replica sends in an all-gather of `size` bytes from each replica."""
    return (replicas - 1) * size
