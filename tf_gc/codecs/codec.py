"""The interface of a codec."""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import tensorflow as tf


class Codec(abc.ABC):
    """Encodes a bucket of gradients into messages, and decodes messages to a sum.

    A codec knows nothing of who sends what to whom, nor of which gradients it gets: those are
    decisions of `tf_gc.params` and `tf_gc.schedule`. A codec is a small frozen value: equal
    arguments make equal codecs, and it holds no tensors.

    A message is int64, [1, words]. The rest goes into the residuals, for the next step. In a
    scatter-gather a bucket is cut into as many shards as there are replicas, and replica i owns
    shard i.

    Attributes:
      keeps_residuals: whether the rest, which a message does not hold, is kept. If not, `residuals`
        are empty wherever they are an argument.
      native: whether the codec needs kernels of the native library.
    """

    keeps_residuals: ClassVar[bool] = True
    native: ClassVar[bool] = True

    @abc.abstractmethod
    def bits(self, replicas: int) -> float:
        """Returns how many bits an element takes in a sum over `replicas` replicas.

        Args:
          replicas: the number of replicas; 1 for a replica's own gradient.
        """

    @property
    def compacts(self) -> bool:
        """Whether messages of `encode` and `encode_shards` get smaller by `pack`."""
        return False

    @property
    def packs_sums(self) -> "Codec | None":
        """The codec whose `pack` makes messages of `sum_shard` smaller; `None` if none does."""
        return None

    def pack(self, messages: tf.Tensor, like: Sequence[Any] = ()) -> tuple[tf.Tensor, tf.Tensor]:
        """Packs messages into fewer words, without loss.

        Args:
          messages: int64 [rows, words].
          like: tensors or variables with the shapes of those that were encoded. With them, the
            messages get shorter.

        Returns:
          The compact messages, int64 [rows, n], each in the first words of a row, and for each of
          them how many words these are, int64 [rows], at most `words`.
        """
        raise ValueError(f"messages of {self} do not get smaller")

    def unpack(self, compact: tf.Tensor, words: int | tf.Tensor) -> tf.Tensor:
        """Returns the messages, int64 [rows, words], that `pack` packed.

        Args:
          compact: int64 [rows, n]: what `pack` made, cut to the longest message or longer.
          words: how many words each message had.
        """
        raise ValueError(f"messages of {self} do not get smaller")

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

        A codec may leave the replica's own shard, with its residuals, to `sum_shard`.

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
        """Returns the encoded sum of this replica's own shard, and updates its residuals.

        It is a message, int64 [1, words], which may be of another kind than `encode`'s.

        Args:
          messages: int64 tensors of shape [rows, words]: the messages of all replicas for this
            shard, in the order of ranks.
          gradients: this replica's gradients, as given to `encode_shards`.
          residuals: the residuals of those gradients.
          shards: the number of shards.
          own: the number of this replica's own shard.
        """

    @abc.abstractmethod
    def decode_shards(
        self, messages: Sequence[tf.Tensor], like: Sequence[tf.Tensor], replicas: int
    ) -> list[tf.Tensor]:
        """Returns the sums of a bucket, decoded from the sums of its shards.

        Args:
          messages: int64 tensors of shape [rows, words]: the messages of `sum_shard`, by shard.
          like: tensors with the shapes and the dtype of the results.
          replicas: how many replicas the sums are over.
        """

    @abc.abstractmethod
    def count_sent(
        self, messages: tf.Tensor, own: int | None = None, own_sum: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Returns how many elements a replica sends as something other than zero.

        Args:
          messages: int64 [rows, words]: what `encode` or `encode_shards` returned.
          own: for `encode_shards`, the shard that this replica owns.
          own_sum: for `encode_shards`, what `sum_shard` returned for that shard.

        Returns:
          An int64 scalar on the host. Where a codec has no code for zero, it may be larger than
          the number of elements.
        """
