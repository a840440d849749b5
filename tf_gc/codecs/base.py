"""The contract of a codec."""

import abc
from collections.abc import Sequence

import tensorflow as tf

# What a codec's `plan` may be; "auto" is the one that sends least.
PLANS = ("auto", "all_gather", "scatter_gather", "hierarchical")


class Codec(abc.ABC):
    """What `compression_params` stands for: which gradients are compressed, and how.

    A small frozen value object: equal parameters make equal codecs, and it holds no tensors.

    Attributes:
      warm_up: whether the first steps are in full precision (`tf_gc.warm_up`).
    """

    warm_up: bool | None = False

    @abc.abstractmethod
    def compresses(self, dtype: tf.DType, num_elements: int) -> bool:
        """Whether a tensor is worth compressing; if not, it is reduced in full precision."""


class MessageCodec(Codec):
    """How a bucket of gradients becomes one message, and messages become a sum.

    A message is int64, [1, words]. What one step leaves for the next is in the residuals. In a
    scatter-gather a bucket is cut into as many shards as there are replicas, and replica i owns
    shard i.

    Attributes:
      plan: who sends what to whom: one of `PLANS`.
    """

    plan: str

    @abc.abstractmethod
    def bits(self, replicas: int) -> float:
        """Returns the bits of an element in what sums up so many replicas."""

    @abc.abstractmethod
    def encode(self, gradients: Sequence[tf.Tensor], residuals: Sequence[tf.Variable]) -> tf.Tensor:
        """Returns one replica's message, int64 [1, words], and updates its residuals.

        Args:
          gradients: the bucket's tensors, of one dtype.
          residuals: their float32 residuals, on the same device.
        """

    @abc.abstractmethod
    def decode(self, messages: Sequence[tf.Tensor], like: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the sum over the messages of all replicas, in their order.

        Args:
          messages: int64 tensors of shape [rows, words], a row for each replica.
          like: tensors with the shapes and the dtype of the results.
        """

    @abc.abstractmethod
    def encode_shards(
        self,
        gradients: Sequence[tf.Tensor],
        residuals: Sequence[tf.Variable],
        shards: int,
        own: int,
    ) -> tf.Tensor:
        """Returns a message for each shard, int64 [shards, words], and updates the residuals.

        Those of the own shard may be left to `sum_shard`.

        Args:
          gradients: the bucket's tensors, of one dtype.
          residuals: their float32 residuals, on the same device.
          shards: the number of shards.
          own: the shard that this replica owns.
        """

    @abc.abstractmethod
    def sum_shard(
        self,
        messages: Sequence[tf.Tensor],
        gradients: Sequence[tf.Tensor],
        residuals: Sequence[tf.Variable],
        shards: int,
        own: int,
    ) -> tf.Tensor:
        """Returns the sum of the own shard, and updates its residuals.

        It is one message, or several that add up: int64 [rows, words].

        Args:
          messages: int64 tensors of shape [rows, words]: by rank, each replica's for this shard.
          gradients: this replica's gradients, as given to `encode_shards`.
          residuals: their residuals.
          shards: the number of shards.
          own: the shard.
        """

    @abc.abstractmethod
    def decode_shards(
        self, messages: Sequence[tf.Tensor], like: Sequence[tf.Tensor], replicas: int
    ) -> list[tf.Tensor]:
        """Returns the sums of a bucket from those of its shards.

        Args:
          messages: int64 tensors of shape [rows, words]: the messages of `sum_shard`, by shard.
          like: tensors with the shapes and the dtype of the results.
          replicas: how many replicas the sums are over.
        """
