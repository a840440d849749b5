"""A codec that remembers what it encoded first, so that a step can be measured."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.codecs.codec import Codec


class Watched(Codec):
    """Another codec, of which one bucket's first encoding by this host is remembered.

    A plan gets it in place of that codec, for one call of `Plan.reduce`. What a member encodes are
    its own gradients or, in a hierarchy, the sums of its host; whatever the plan, those are what
    its residuals belong to.

    Attributes:
      gradients: what was encoded; empty until something was.
      residuals: the residuals that took what was left.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._messages: tf.Tensor | None = None
        self._own: int | None = None
        self._own_sum: tf.Tensor | None = None
        self.gradients: Sequence[tf.Tensor] = ()
        self.residuals: Sequence[tf.Variable] = ()

    def sent(self) -> tf.Tensor:
        """Returns how many elements were sent as something other than zero; see `count_sent`."""
        return self._codec.count_sent(self._messages, self._own, self._own_sum)

    def bits(self, replicas: int) -> float:
        return self._codec.bits(replicas)

    @property
    def compacts(self) -> bool:
        return self._codec.compacts

    @property
    def compacts_sums(self) -> bool:
        return self._codec.compacts_sums

    def pack(self, messages: tf.Tensor, like: Sequence[Any] = ()) -> tuple[tf.Tensor, tf.Tensor]:
        return self._codec.pack(messages, like)

    def unpack(self, compact: tf.Tensor, words: int | tf.Tensor) -> tf.Tensor:
        return self._codec.unpack(compact, words)

    def encode(self, gradients: Sequence[tf.Tensor], residuals: Sequence[tf.Variable]) -> tf.Tensor:
        message = self._codec.encode(gradients, residuals)
        if self._messages is None:
            self._remember(gradients, residuals, message)
        return message

    def decode(self, messages: Sequence[tf.Tensor], like: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return self._codec.decode(messages, like)

    def encode_shards(
        self,
        gradients: Sequence[tf.Tensor],
        residuals: Sequence[tf.Variable],
        shards: int,
        own: int,
    ) -> tf.Tensor:
        messages = self._codec.encode_shards(gradients, residuals, shards, own)
        if self._messages is None:
            self._remember(gradients, residuals, messages)
            self._own = own
        return messages

    def sum_shard(
        self,
        messages: Sequence[tf.Tensor],
        gradients: Sequence[tf.Tensor],
        residuals: Sequence[tf.Variable],
        shards: int,
        own: int,
    ) -> tf.Tensor:
        total = self._codec.sum_shard(messages, gradients, residuals, shards, own)
        if own == self._own:
            self._own_sum = total
        return total

    def decode_shards(
        self, messages: Sequence[tf.Tensor], like: Sequence[tf.Tensor], replicas: int
    ) -> list[tf.Tensor]:
        return self._codec.decode_shards(messages, like, replicas)

    def count_sent(
        self, messages: tf.Tensor, own: int | None = None, own_sum: tf.Tensor | None = None
    ) -> tf.Tensor:
        return self._codec.count_sent(messages, own, own_sum)

    def _remember(
        self,
        gradients: Sequence[tf.Tensor],
        residuals: Sequence[tf.Variable],
        messages: tf.Tensor,
    ) -> None:
        self.gradients, self.residuals, self._messages = gradients, residuals, messages
