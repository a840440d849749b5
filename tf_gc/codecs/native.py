"""The codecs of the native library, by the ops of `tf_gc.ops`."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tf_gc import ops
from tf_gc.codecs.codec import Codec, Tensors, Variables

# The codecs' names in words.
BITS = {kind: f"{n} bit{'s' if n > 1 else ''}" for n, kind in ops.codecs_by_bits().items()}


def keeps_residuals(kind: str) -> bool:
    """Whether what a codec leaves is kept; eight bits leave too little for that."""
    return kind != "eight_bit"


@dataclasses.dataclass(frozen=True)
class NativeCodec(Codec):
    """A codec of the native library, with automatic scales or with a fixed threshold."""

    kind: str  # the codec's name in `tf_gc.ops`
    threshold: float | str  # "auto", or the number that the codes are made with
    sum_kind: str  # which encodes a sum of `sum_shard`; `kind` if the threshold is fixed
    residual: str = "float32"  # or "bfloat16", "int8", if the threshold is "auto"

    @property
    def residual_dtype(self) -> tf.DType | None:
        return tf.as_dtype(self.residual) if keeps_residuals(self.kind) else None

    def bits(self, replicas: int) -> float:
        kind = self.sum_kind if replicas > 1 else self.kind
        return ops.message_bits(replicas, kind, self.threshold)

    @property
    def compacts(self) -> bool:
        return ops.is_compactible(self.kind, self.threshold)

    @property
    def packs_sums(self) -> Codec | None:
        if self.threshold != "auto":
            return None  # counts, which have no compact form
        of_sums = NativeCodec(self.sum_kind, "auto", self.sum_kind)
        return of_sums if of_sums.compacts else None

    def pack(
        self, messages: tf.Tensor, like: Sequence[tf.Tensor | tf.Variable] = ()
    ) -> tuple[tf.Tensor, tf.Tensor]:
        # If no tensor has a period, blocks that follow each other may still be alike.
        periods = ops.periods(tensor.shape for tensor in like) or (1,)
        return ops.pack(messages, self.kind, self.threshold, periods)

    def unpack(self, compact: tf.Tensor, words: int | tf.Tensor) -> tf.Tensor:
        return ops.unpack(compact, words, self.kind, self.threshold)

    def encode(self, gradients: Tensors, residuals: Variables) -> tf.Tensor:
        return ops.encode(gradients, residuals, self.kind, self.threshold)

    def decode(self, messages: Tensors, like: Tensors) -> list[tf.Tensor]:
        return ops.decode(messages, like, self.kind, self.threshold)

    def encode_shards(
        self, gradients: Tensors, residuals: Variables, shards: int, own: int
    ) -> tf.Tensor:
        # With a fixed threshold the result must not depend on the plan, so a replica also rounds
        # its own shard.
        skip = own if self.threshold == "auto" else None
        return ops.encode(gradients, residuals, self.kind, self.threshold, shards, skip)

    def sum_shard(
        self, messages: Tensors, gradients: Tensors, residuals: Variables, shards: int, own: int
    ) -> tf.Tensor:
        if self.threshold == "auto":
            return ops.reencode(
                messages, gradients, residuals, own, shards, self.kind, self.sum_kind
            )
        return ops.count(messages, shards, self.kind, self.threshold)

    def decode_shards(self, messages: Tensors, like: Tensors, replicas: int) -> list[tf.Tensor]:
        return ops.decode_shards(
            messages, like, self.sum_kind, self.threshold, shards=replicas, replicas=replicas
        )

    def count_sent(
        self, messages: tf.Tensor, own: int | None = None, own_sum: tf.Tensor | None = None
    ) -> tf.Tensor:
        if own is None or own_sum is None or self.threshold != "auto":
            return ops.count_sent(messages, self.kind, self.threshold)
        # The own shard, which `encode_shards` left out, is in the sum.
        others = tf.concat([messages[:own], messages[own + 1 :]], axis=0)
        of_sum = ops.count_sent(own_sum, self.sum_kind, self.threshold)
        with tf.device("CPU:0"):
            return ops.count_sent(others, self.kind, self.threshold) + of_sum

    def __str__(self) -> str:
        fixed = "" if self.threshold == "auto" else f" (threshold {self.threshold})"
        return BITS[self.kind] + fixed
