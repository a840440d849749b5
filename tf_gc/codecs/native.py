"""The codecs of the native library: those of `tf_gc.ops`."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc import ops
from tf_gc.codecs.codec import Codec


@dataclasses.dataclass(frozen=True)
class NativeCodec(Codec):
    """A codec of the native library, with automatic scales or with a fixed threshold.

    Attributes:
      kind: the name of the codec in `tf_gc.ops`.
      threshold: `"auto"` for a scale for each block of elements, or the number that the codes are
        made with.
      sum_layers: in how many messages, 1 or 2, `sum_shard` encodes a sum with automatic scales;
        1 with a fixed threshold, with which sums are encoded without loss.
    """

    kind: str
    threshold: float | str
    sum_layers: int

    def bits(self, replicas: int) -> float:
        messages = self.sum_layers if replicas > 1 else 1
        return messages * ops.message_bits(replicas, self.kind, self.threshold)

    @property
    def compacts(self) -> bool:
        return ops.is_compactible(self.kind, self.threshold)

    @property
    def compacts_sums(self) -> bool:
        # Sums with a fixed threshold are counts, which have no compact form.
        return self.compacts and self.threshold == "auto"

    def pack(self, messages: tf.Tensor, like: Sequence[Any] = ()) -> tuple[tf.Tensor, tf.Tensor]:
        periods = ops.periods(tensor.shape for tensor in like)
        if like and not periods:
            periods = (1,)  # Any period makes packing thorough.
        return ops.pack(messages, self.kind, self.threshold, periods)

    def unpack(self, compact: tf.Tensor, words: int | tf.Tensor) -> tf.Tensor:
        return ops.unpack(compact, words, self.kind, self.threshold)

    def encode(self, gradients: Sequence[tf.Tensor], residuals: Sequence[tf.Variable]) -> tf.Tensor:
        return ops.encode(gradients, residuals, self.kind, self.threshold)

    def decode(self, messages: Sequence[tf.Tensor], like: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return ops.decode(messages, like, self.kind, self.threshold)

    def encode_shards(
        self,
        gradients: Sequence[tf.Tensor],
        residuals: Sequence[tf.Variable],
        shards: int,
        own: int,
    ) -> tf.Tensor:
        # With a fixed threshold the result must not depend on the plan, so a replica also rounds
        # its own shard.
        skip = own if self.threshold == "auto" else None
        return ops.encode(gradients, residuals, self.kind, self.threshold, shards, skip)

    def sum_shard(
        self,
        messages: Sequence[tf.Tensor],
        gradients: Sequence[tf.Tensor],
        residuals: Sequence[tf.Variable],
        shards: int,
        own: int,
    ) -> tf.Tensor:
        if self.threshold == "auto":
            return ops.reencode(
                messages, gradients, residuals, own, shards, self.sum_layers, self.kind
            )
        return ops.count(messages, shards, self.kind, self.threshold)

    def decode_shards(
        self, messages: Sequence[tf.Tensor], like: Sequence[tf.Tensor], replicas: int
    ) -> list[tf.Tensor]:
        return ops.decode_shards(
            messages,
            like,
            self.kind,
            self.threshold,
            shards=replicas,
            replicas=replicas,
            layers=self.sum_layers,
        )

    def count_sent(
        self, messages: tf.Tensor, own: int | None = None, own_sum: tf.Tensor | None = None
    ) -> tf.Tensor:
        if own is not None and own_sum is not None and self.threshold == "auto":
            # What `encode_shards` left out is in the first layer of the sum.
            messages = tf.concat([messages[:own], own_sum[:1], messages[own + 1 :]], axis=0)
        return ops.count_sent(messages, self.kind, self.threshold)

    def __str__(self) -> str:
        automatic = self.threshold == "auto"
        return f"{self.kind} ({'automatic scales' if automatic else f'threshold {self.threshold}'})"
