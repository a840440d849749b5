"""What all ways to send gradients have in common, and the one to a parameter server."""

import abc
from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class Exchange(abc.ABC):
    """Sends buckets of gradients, to whomever.

    `str` of it says in a few words how, as `print(strategy.schedule)` shows it.

    Attributes:
      name: what is sent of an element, such as "three_bit (automatic scales)".
      plan: the name of who sends what to whom.
      wire: the name of how it travels.
      keeps_residuals: whether what is not sent is kept for the next step. If not, there are no
        residuals wherever they are an argument.
      caution: what users should know of it, for the log; empty if there is nothing.
    """

    name: str
    plan: str
    wire: str
    keeps_residuals: bool
    caution: str = ""

    def __str__(self) -> str:
        return f"{self.name}, {self.plan}, {self.wire}"


class Push(Exchange):
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
          What was pushed, on the server, in the dtype of the gradients; and how many words a
          message has before a wire makes it smaller, 0 if only the step knows that.
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
        """Returns a worker's message, and updates its residuals.

        Args:
          gradients: as in `send`.
          residuals: likewise.
          variables: likewise.

        Returns:
          The message, int64 [1, n]; and how many words it has before a wire makes it smaller, 0 if
          only the step knows that.
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
        """Returns what pushes such gradients, of a dtype, in a warm-up."""
