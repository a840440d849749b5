"""Specs, which say how gradients are sent, and what they make: reducers, or pushes to servers."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_gc.network.group import Bytes, Network, Replica
from tf_gc.state.registry import Slot


class Spec(abc.ABC):
    """How a gradient is sent, on whatever network: a small frozen value.

    Gradients with equal specs share a bucket.

    Attributes:
      warm_up: whether the first steps are in full precision (`tf_gc.steps.warm_up`).
      native: whether that needs kernels of the native library on the replicas' devices.
      in_one_bucket: whether all gradients travel together, because messages are small.
    """

    warm_up: bool
    native: bool = False
    in_one_bucket: bool = False

    @abc.abstractmethod
    def on(self, network: Network) -> "Reducer | str":
        """Makes the reducer for a network. This may be a collective of all workers.

        Returns:
          The reducer; or why these gradients are left to the stock ops there, in words that follow
          "n gradients".

        Raises:
          ValueError: if the user asks for something that is of no use on this network.
        """

    @abc.abstractmethod
    def push(self) -> "Push":
        """Makes a `Push`, which sends gradients to parameter servers instead of summing them.

        Raises:
          ValueError: if the user asks for something that is of no use there.
        """


class Sender:
    """Sends buckets of gradients: a `Reducer` to all replicas, a `Push` to a parameter server.

    `str` of it says in a few words how, as `print(strategy.schedule)` shows it.

    Attributes:
      name: the encoding of an element, such as "three_bit (automatic scales)".
      plan: the name of who sends what to whom.
      wire: the name of how messages travel.
      keeps_residuals: whether what is not sent is kept for the next step. If not, there are no
        residuals wherever they are an argument.
      caution: a warning for the log; empty if there is none.
    """

    name: str
    plan: str
    wire: str
    keeps_residuals: bool
    caution: str = ""

    def __str__(self) -> str:
        return f"{self.name}, {self.plan}, {self.wire}"


@dataclasses.dataclass(frozen=True)
class Reduction:
    """The sums of a bucket.

    Attributes:
      sums: for each replica of this host, the bucket's sums, on the replica's device.
      measured: the replica of this host whose message, gradients and residuals reports measure; in
        a hierarchy the leader, with the gradients of the whole host.
      count_sent: builds the number of elements that it sent as something other than zero, an int64
        scalar.
      sent_bytes: the bytes that a replica sent for the bucket (in a hierarchy, the replica's part
        of the bytes that its host sent to other hosts).
      most_bytes: an upper bound of `sent_bytes` where only the step itself knows them; 0 if there
        is none.
      stock_bytes: the bytes that a replica would send by the stock ops, where only the step itself
        knows.
    """

    sums: Sequence[Sequence[Any]]
    measured: Replica
    count_sent: Callable[[], tf.Tensor]
    sent_bytes: Bytes
    most_bytes: Bytes = 0
    stock_bytes: Bytes | None = None


class Reducer(Sender, abc.ABC):
    """Sums buckets of gradients over all replicas of one network.

    Attributes:
      choice: what was chosen for this network and why, for the log; empty if there was no choice.
    """

    choice: str = ""

    @property
    def in_full_precision(self) -> "Reducer | None":
        """Sums the steps of a warm-up; `None` if the stock ops do."""
        return None

    def slot(self, shape: Sequence[int]) -> Slot | None:
        """Returns what it keeps for a gradient beside residuals, the same on all replicas.

        Args:
          shape: the shape of the gradient's variable.
        """
        del shape
        return None

    @abc.abstractmethod
    def reduce(self, bucket: int, replicas: Sequence[Replica], options: Any) -> Reduction:
        """Sums a bucket over all replicas. All replicas get the same bits.

        Args:
          bucket: the bucket's number.
          replicas: the replicas of this host, in the order of the network's devices.
          options: a `tf.distribute.experimental.CommunicationOptions`.
        """


class Push(Sender, abc.ABC):
    """Sends a worker's gradients to the parameter server that has their variables."""

    plan = "push"

    def send(
        self,
        gradients: Sequence[Any],
        residuals: Sequence[tf.Tensor],
        variables: Sequence[Any],
        server: str,
        warm_up: tf.Tensor | None = None,
    ) -> tuple[list[Any], int]:
        """Encodes a bucket here, on the worker, updates its residuals, and decodes it on a server.

        Args:
          gradients: the bucket's gradients, of one dtype.
          residuals: the handles of their float32 residuals, on the worker.
          variables: the variables of the gradients.
          server: the device that has the variables.
          warm_up: whether this step is in full precision, a bool scalar; `None` if none is.

        Returns:
          The pushed gradients, on the server, in their dtype; and how many words a message has
          before a wire makes it smaller, 0 if only the step knows that.
        """
        sizes: dict[Push, int] = {}

        def encode(push: Push) -> tf.Tensor:
            message, sizes[push] = push.encode(gradients, residuals, variables)
            return message

        def decode(push: Push, message: tf.Tensor) -> list[Any]:
            return push.decode(message, sizes[push], gradients, variables)

        if warm_up is None:
            message = encode(self)
            with tf.device(server):
                return decode(self, message), sizes[self]
        exactly = self.in_full_precision(gradients[0].dtype)
        message = tf.cond(warm_up, lambda: encode(exactly), lambda: encode(self))
        with tf.device(server):
            pushed: list[Any] = tf.cond(
                warm_up, lambda: decode(exactly, message), lambda: decode(self, message)
            )
        return pushed, sizes[self]

    @abc.abstractmethod
    def encode(
        self, gradients: Sequence[Any], residuals: Sequence[tf.Tensor], variables: Sequence[Any]
    ) -> tuple[tf.Tensor, int]:
        """Returns a worker's message, int64 [1, n], and its words as in `send`.

        It updates the residuals. Arguments are as in `send`.
        """

    @abc.abstractmethod
    def decode(
        self, message: tf.Tensor, size: int, gradients: Sequence[Any], variables: Sequence[Any]
    ) -> list[Any]:
        """Returns what was pushed, in the dtype of the gradients.

        Args:
          message: what `encode` returned.
          size: the number that it returned.
          gradients: the bucket's gradients. Nothing of their values is read: with them TensorFlow
            would send them.
          variables: the variables of the gradients.
        """

    @abc.abstractmethod
    def in_full_precision(self, dtype: tf.DType) -> "Push":
        """Returns the `Push` for such gradients, of a dtype, in a warm-up."""
