"""Specs, which say how gradients are sent, and what they make: reducers, or pushes to servers."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_gc.network.group import Bytes, Network, Replica
from tf_gc.state.registry import Slot


class Spec(abc.ABC):
    """How a gradient is sent, on whatever network: a frozen value. Equal specs share a bucket."""

    warm_up: bool  # whether the first steps are in full precision (`tf_gc.steps.warm_up`)
    native: bool = False  # whether the replicas' devices need kernels of the native library
    in_one_bucket: bool = False  # whether all gradients travel together: messages are small

    @abc.abstractmethod
    def on(self, network: Network) -> "Reducer | str":
        """Makes the reducer for a network. This may be a collective of all workers.

        If these gradients are left to the stock ops there, it says why, in words that follow "n
        gradients". It raises ValueError if the user asks for something that is of no use there.
        """

    @abc.abstractmethod
    def push(self) -> "Push":
        """Makes what sends gradients to parameter servers, or raises ValueError as `on`."""


class Sender:
    """Sends buckets of gradients: a `Reducer` to all replicas, a `Push` to a parameter server."""

    name: str  # of the encoding of an element, such as "3 bits"
    plan: str  # the name of who sends what to whom
    wire: str  # the name of how messages travel
    # Of what is not sent and so is kept; `None`: nothing is, and no residuals are given.
    residual_dtype: tf.DType | None
    caution: str = ""  # a warning for the log, if there is one

    def __str__(self) -> str:
        return f"{self.name}, {self.plan}, {self.wire}"


@dataclasses.dataclass(frozen=True)
class Reduction:
    """The sums of a bucket."""

    sums: Sequence[Sequence[Any]]  # for each replica of this host, on its device
    # The replica of this host whose density and residuals are reported; in a hierarchy the leader,
    # with the gradients of the whole host.
    reporter: Replica
    count_sent: Callable[[], tf.Tensor]  # the elements that it sent as other than zero, int64 []
    sent_bytes: Bytes  # by a replica (in a hierarchy, its part of those of its host)
    most_bytes: Bytes = 0  # an upper bound where only the step knows `sent_bytes`; 0 if none
    stock_bytes: Bytes | None = None  # which the stock ops would send, where only the step knows


class Reducer(Sender, abc.ABC):
    """Sums buckets of gradients over all replicas of one network."""

    choice: str = ""  # what was chosen for this network and why, for the log

    @property
    def in_full_precision(self) -> "Reducer | None":
        """Sums the steps of a warm-up; `None` if the stock ops do."""
        return None

    def slot(self, shape: Sequence[int]) -> Slot | None:
        """Returns what all replicas keep alike for a variable of a shape, beside residuals."""
        del shape
        return None

    @abc.abstractmethod
    def reduce(self, bucket: int, replicas: Sequence[Replica], options: Any) -> Reduction:
        """Sums the bucket of this number over all replicas, which get the same bits.

        `replicas` are those of this host, in the order of the network's devices, and `options` a
        `tf.distribute.experimental.CommunicationOptions`.
        """


class Push(Sender, abc.ABC):
    """Sends a worker's gradients to the parameter server that has their variables."""

    plan = "push"

    def send(
        self, worker: Replica, server: str, warm_up: tf.Tensor | None = None
    ) -> tuple[list[Any], int]:
        """Encodes a worker's part of a bucket here, and decodes it on the device of the server.

        The worker's residuals are handles. `warm_up` says whether this step is in full precision, a
        bool scalar; `None` if none is.

        Returns:
          The pushed gradients, on the server, in their dtype; and how many words a message has
          before a wire makes it smaller, 0 if only the step knows that.
        """
        sizes: dict[Push, int] = {}

        def encode(push: Push) -> tf.Tensor:
            message, sizes[push] = push.encode(worker)
            return message

        def decode(push: Push) -> list[Any]:
            return push.decode(message, sizes[push], worker)

        if warm_up is None:
            message = encode(self)
            with tf.device(server):
                return decode(self), sizes[self]
        exactly = self.in_full_precision(worker.gradients[0].dtype)
        message = tf.cond(warm_up, lambda: encode(exactly), lambda: encode(self))
        with tf.device(server):
            pushed = tf.cond(warm_up, lambda: decode(exactly), lambda: decode(self))
        return pushed, sizes[self]

    @abc.abstractmethod
    def encode(self, worker: Replica) -> tuple[tf.Tensor, int]:
        """Returns a message, int64 [1, n], and its words as in `send`; updates the residuals."""

    @abc.abstractmethod
    def decode(self, message: tf.Tensor, size: int, worker: Replica) -> list[Any]:
        """Returns what was pushed, given what `encode` returned, and reads no gradient."""

    @abc.abstractmethod
    def in_full_precision(self, dtype: tf.DType) -> "Push":
        """Returns what sends such gradients, of a dtype, in a warm-up."""
