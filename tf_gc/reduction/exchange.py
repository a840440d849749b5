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

    @abc.abstractmethod
    def send(
        self,
        gradients: Sequence[Any],
        residuals: Sequence[tf.Tensor],
        variables: Sequence[Any],
        server: str,
    ) -> list[Any]:
        """Encodes a bucket here, on the worker, updates its residuals, and decodes it on a server.

        Args:
          gradients: the bucket's gradients, of one dtype.
          residuals: the handles of their float32 residuals, on the worker.
          variables: the variables of the gradients.
          server: the device that has the variables.

        Returns:
          What was pushed, on the server, in the dtype of the gradients.
        """
