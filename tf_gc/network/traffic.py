"""Traffic: how many bytes a step sends to sum its gradients."""

import dataclasses

ALONE = "nothing is compressed: one replica has nothing to communicate"


@dataclasses.dataclass(frozen=True)
class Traffic:
    """The bytes that each replica sends in one step to sum the gradients.

    Attributes:
      plan: who sends what to whom: "all_gather", "scatter_gather" or "hierarchical".
      replicas: the number of replicas that take part.
      buckets: the number of messages in which the compressed gradients travel.
      compressed_tensors: the number of gradients that are compressed.
      bypassed_tensors: the number of gradients that the stock ops reduce.
      sent_bytes: what a replica sends in a step, bypassed gradients included. Unless the wire is
        packed, only a step itself knows that: this is then what the latest step sent or, while
        `at_most` says so, what a step sends at most.
      stock_bytes: what a replica would send if the stock ops reduced all gradients. They gather
        sparse gradients (`tf.IndexedSlices`) row by row. Where the number of rows is not known
        before the step, one that is not compressed counts as large as its variable.
      wire: how codes travel: "packed" or "compact".
      at_most: whether no step has said yet what it sends.
      excluded_tensors: how many of the bypassed gradients the user excludes.
      bypassed_bytes: how many of the `sent_bytes` are for bypassed gradients.
      without_rows: whether `sent_bytes` and `stock_bytes` leave out the rows of compressed sparse
        gradients, since no step has said yet how many there are.
      after_warm_up: whether no step has sent that yet, since the warm-up lasts.
    """

    plan: str
    replicas: int
    buckets: int
    compressed_tensors: int
    bypassed_tensors: int
    sent_bytes: int
    stock_bytes: int
    wire: str = "packed"
    at_most: bool = False
    excluded_tensors: int = 0
    bypassed_bytes: int = 0
    without_rows: bool = False
    after_warm_up: bool = dataclasses.field(default=False, compare=False)

    @property
    def ratio(self) -> float:
        """`stock_bytes` divided by `sent_bytes`."""
        return self.stock_bytes / self.sent_bytes if self.sent_bytes else 1.0

    def completed(self, sent: int, stock: int) -> "Traffic":
        """Returns it with the bytes that only a step knows: in buckets, and by the stock ops."""
        return dataclasses.replace(
            self,
            sent_bytes=self.bypassed_bytes + sent,
            stock_bytes=self.stock_bytes + stock,
            at_most=False,
            without_rows=False,
        )

    def __add__(self, other: "Traffic") -> "Traffic":
        """Returns the bytes of a step in which two streams of gradients are summed."""
        names = "buckets compressed_tensors bypassed_tensors sent_bytes stock_bytes "
        sums = (names + "excluded_tensors bypassed_bytes").split()
        ors = ("at_most", "without_rows", "after_warm_up")
        mine, theirs = vars(self), vars(other)
        return dataclasses.replace(
            self,
            plan=_both(self.plan, other.plan),
            wire=_both(self.wire, other.wire),
            **{name: mine[name] + theirs[name] for name in sums},
            **{name: mine[name] or theirs[name] for name in ors},
        )

    def __str__(self) -> str:
        if self.replicas == 1:
            return ALONE
        sent = f"{'at most ' if self.at_most else ''}{self.sent_bytes:,} bytes a step"
        if self.buckets == 0:
            tensors = _count(self.bypassed_tensors, "tensor")
            return f"{tensors} among {self.replicas} replicas uncompressed; a replica sends {sent}"
        bypassed = f"{_count(self.bypassed_tensors, 'tensor')} bypassed"
        if self.excluded_tensors:
            bypassed += f" ({self.excluded_tensors} excluded)"
        return (
            f"{self.plan} among {self.replicas} replicas, {_count(self.buckets, 'bucket')} with "
            f"{_count(self.compressed_tensors, 'tensor')}, {bypassed}, {self.wire} wire; a replica "
            f"sends {sent} instead of {self.stock_bytes:,}"
            + (", and rows of sparse gradients" if self.without_rows else "")
            + (", once the warm-up has ended" if self.after_warm_up else "")
        )

    __repr__ = __str__  # which notebooks show


def _both(names: str, others: str) -> str:
    return ", ".join(dict.fromkeys([*names.split(", "), *others.split(", ")]))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def all_reduce_bytes(size: int, replicas: int) -> int:
    """Bytes a replica sends in a ring all-reduce of `size` bytes (Patarasuk, Yuan 2009)."""
    return 2 * (replicas - 1) * size // replicas


def all_gather_bytes(size: int, replicas: int) -> int:
    """Bytes a replica sends in an all-gather of `size` bytes from each replica."""
    return (replicas - 1) * size
