"""The interface of a codec."""

import abc
from collections.abc import Sequence
from typing import ClassVar

import tensorflow as tf

Tensors = Sequence[tf.Tensor]
Variables = Sequence[tf.Variable]


class Codec(abc.ABC):
    """Encodes a bucket of gradients into messages, and decodes messages to a sum.

    A codec knows nothing of who sends what to whom, nor of which gradients it gets: those are
    decisions of `tf_gc.params` and `tf_gc.schedule`. A codec is a small frozen value: equal
    arguments make equal codecs, and it holds no tensors.

    `gradients` are the bucket's tensors, of one dtype; `residuals` are variables of their shapes
    and of `residual_dtype`, on the same device, or handles of such (under parameter servers, where
    `tf_gc.ops` or `tf.raw_ops` read them), and keep for the next step what a message, int64
    [1, words], does not hold. `messages` are int64 tensors of shape [rows, words], and `like`
    tensors with the shapes and the dtype of the results. In a scatter-gather a bucket is cut into
    as many shards as there are replicas, and replica i owns shard i.

    Attributes:
      residual_dtype: in which what a message does not hold is kept: float32, bfloat16 or int8.
        `None`: it is not kept, and `residuals` are empty wherever they are an argument.
      native: whether the codec needs kernels of the native library.
    """

    native: ClassVar[bool] = True

    @property
    def residual_dtype(self) -> tf.DType | None:
        return None

    @abc.abstractmethod
    def bits(self, replicas: int) -> float:
        """Returns how many bits an element takes in a sum over `replicas` replicas.

        1 is for a replica's own gradient.
        """

    @property
    def compacts(self) -> bool:
        """Whether messages of `encode` and `encode_shards` get smaller by `pack`."""
        return False

    @property
    def packs_sums(self) -> "Codec | None":
        """The codec whose `pack` makes messages of `sum_shard` smaller; `None` if none does."""
        return None

    def pack(
        self, messages: tf.Tensor, like: Sequence[tf.Tensor | tf.Variable] = ()
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Packs messages, int64 [rows, words], into fewer words, without loss.

        Returns the compact messages, int64 [rows, n], each in the first words of a row, and for
        each of them how many words these are, int64 [rows], at most `words`. With `like`, tensors
        or variables with the shapes of those that were encoded, the messages get shorter.
        """
        raise ValueError(f"messages of {self} do not get smaller")

    def unpack(self, compact: tf.Tensor, words: int | tf.Tensor) -> tf.Tensor:
        """Returns the messages, int64 [rows, words], that `pack` packed.

        `compact` may be cut to the longest message, or longer.
        """
        raise ValueError(f"messages of {self} do not get smaller")

    @abc.abstractmethod
    def encode(self, gradients: Tensors, residuals: Variables) -> tf.Tensor:
        """Returns one replica's message, int64 [1, words], and updates its residuals."""

    @abc.abstractmethod
    def decode(self, messages: Tensors, like: Tensors) -> list[tf.Tensor]:
        """Returns the sum over the messages of all replicas, a row for each, in their order."""

    @abc.abstractmethod
    def encode_shards(
        self, gradients: Tensors, residuals: Variables, shards: int, own: int
    ) -> tf.Tensor:
        """Returns a message for each shard, int64 [shards, words], and updates the residuals.

        A codec may leave the shard that this replica owns, `own`, with its residuals to
        `sum_shard`.
        """

    @abc.abstractmethod
    def sum_shard(
        self, messages: Tensors, gradients: Tensors, residuals: Variables, shards: int, own: int
    ) -> tf.Tensor:
        """Returns the encoded sum of this replica's own shard, and updates its residuals.

        It is a message, int64 [1, words], which may be of another kind than `encode`'s. `messages`
        are those of all replicas for this shard, in the order of ranks, and the rest is as in
        `encode_shards`.
        """

    @abc.abstractmethod
    def decode_shards(self, messages: Tensors, like: Tensors, replicas: int) -> list[tf.Tensor]:
        """Returns the sums of a bucket, over `replicas` replicas.

        `messages` are those of `sum_shard`, by shard.
        """

    @abc.abstractmethod
    def count_sent(
        self, messages: tf.Tensor, own: int | None = None, own_sum: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Returns how many elements a replica sends as something other than zero.

        An int64 scalar on the host; where a codec has no code for zero, it may be larger than the
        number of elements. `messages` are what `encode` returned or, with the shard `own` that this
        replica owns and its message `own_sum` of `sum_shard`, `encode_shards`.
        """
