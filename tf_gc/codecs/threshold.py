"""The codecs of two bits and of one bit, each with automatic scales or with a fixed threshold."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import tensorflow as tf

from tf_gc import ops
from tf_gc.codecs.codec import Codec


class _Ops(NamedTuple):
    """The functions of one kind of code in `tf_gc.ops`."""

    encode: Callable[..., tf.Tensor]
    decode: Callable[..., list[tf.Tensor]]
    reencode: Callable[..., tf.Tensor]
    count: Callable[..., tf.Tensor]
    decode_shards: Callable[..., list[tf.Tensor]]
    message_bits: Callable[..., float]


_OPS = {
    "two_bit": _Ops(
        ops.two_bit_encode,
        ops.two_bit_decode,
        ops.two_bit_reencode,
        ops.two_bit_count,
        ops.two_bit_decode_shards,
        ops.two_bit_message_bits,
    ),
    "one_bit": _Ops(
        ops.one_bit_encode,
        ops.one_bit_decode,
        ops.one_bit_reencode,
        ops.one_bit_count,
        ops.one_bit_decode_shards,
        ops.one_bit_message_bits,
    ),
}


@dataclasses.dataclass(frozen=True)
class ThresholdCodec(Codec):
    """A codec whose codes stand for plus and minus a scale, with two bits also for zero.

    Attributes:
      kind: "two_bit" or "one_bit".
      threshold: `"auto"` for a scale for each block of elements, or the number that the codes are
        made with.
      sum_layers: in how many messages, 1 or 2, `sum_shard` encodes a sum with automatic scales;
        1 with a fixed threshold, with which sums are encoded without loss.
    """

    kind: Literal["two_bit", "one_bit"]
    threshold: float | str
    sum_layers: int

    def bits(self, replicas: int) -> float:
        messages = self.sum_layers if replicas > 1 else 1
        return messages * self._ops.message_bits(replicas, self.threshold)

    def encode(self, gradients: Sequence[tf.Tensor], residuals: Sequence[tf.Variable]) -> tf.Tensor:
        return self._ops.encode(gradients, residuals, self.threshold)

    def decode(self, messages: Sequence[tf.Tensor], like: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return self._ops.decode(messages, like, self.threshold)

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
        return self._ops.encode(gradients, residuals, self.threshold, shards, skip)

    def sum_shard(
        self,
        messages: Sequence[tf.Tensor],
        gradients: Sequence[tf.Tensor],
        residuals: Sequence[tf.Variable],
        shards: int,
        own: int,
    ) -> tf.Tensor:
        if self.threshold == "auto":
            return self._ops.reencode(messages, gradients, residuals, own, shards, self.sum_layers)
        return self._ops.count(messages, shards, self.threshold)

    def decode_shards(
        self, messages: Sequence[tf.Tensor], like: Sequence[tf.Tensor], replicas: int
    ) -> list[tf.Tensor]:
        return self._ops.decode_shards(
            messages,
            like,
            self.threshold,
            shards=replicas,
            replicas=replicas,
            layers=self.sum_layers,
        )

    def __str__(self) -> str:
        layers = f", sums in {self.sum_layers} messages" if self.sum_layers > 1 else ""
        return f"{self.kind} (threshold {self.threshold}{layers})"

    @property
    def _ops(self) -> _Ops:
        return _OPS[self.kind]
