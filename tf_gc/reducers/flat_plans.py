"""The plans in which all replicas do the same: all-gather and scatter-gather."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.codecs import Codec
from tf_gc.network.group import Received, Replica, on_devices, once_per_host
from tf_gc.reducers.plan import FlatPlan
from tf_gc.reducers.reducer import Reduction


class AllGather(FlatPlan):
    """Every replica adds the messages of all in the same order, so all get the same bits."""

    plan = "all_gather"

    @staticmethod
    def bits_sent(codec: Codec, replicas: int) -> float:
        return (replicas - 1) * codec.bits(1)

    def reduce(self, bucket: int, replicas: Sequence[Replica], options: Any) -> Reduction:
        codec, first = self.codec, replicas[0]
        channel = self.open(bucket, first, options)
        messages = on_devices(replicas, lambda r: codec.encode(r.gradients, r.residuals))
        received = channel.all_gather(messages)
        sums = once_per_host(replicas, lambda r, sent: codec.decode(sent, r.gradients), received)
        count_sent = functools.partial(codec.count_sent, messages[0])
        return Reduction(sums, first, count_sent, channel.sent_bytes, channel.most_bytes)


class ScatterGather(FlatPlan):
    """Each replica adds up one shard and sends the sum to all others.

    This is a reduce-scatter followed by an all-gather (Rabenseifner 2004), with codes for numbers:
    an all-to-all brings the messages for a shard to the replica that owns it, which adds them up
    and encodes the sum. An all-gather brings the sums to all replicas, which so get the same bits.
    With N replicas, each sends (N - 1) / N of a bucket's message and of its sum.
    """

    plan = "scatter_gather"

    @staticmethod
    def bits_sent(codec: Codec, replicas: int) -> float:
        return (replicas - 1) * (codec.bits(1) + codec.bits(replicas)) / replicas

    def reduce(self, bucket: int, replicas: Sequence[Replica], options: Any) -> Reduction:
        codec, first, size, ranks = self.codec, replicas[0], self.group.size, self.group.ranks

        def encode(own: Replica, rank: int) -> tf.Tensor:
            return codec.encode_shards(own.gradients, own.residuals, size, rank)

        def add_up(own: Replica, rank: int, received: Received) -> tf.Tensor:
            return codec.sum_shard(received, own.gradients, own.residuals, size, rank)

        def decode(own: Replica, received: Received) -> list[tf.Tensor]:
            return codec.decode_shards(received, own.gradients, replicas=size)

        channel = self.open(bucket, first, options)
        shards = on_devices(replicas, encode, ranks)
        shard_sums = on_devices(replicas, add_up, ranks, channel.all_to_all(shards))
        sums = once_per_host(replicas, decode, channel.all_gather_sums(shard_sums))
        count_sent = functools.partial(codec.count_sent, shards[0], ranks[0], shard_sums[0])
        return Reduction(sums, first, count_sent, channel.sent_bytes, channel.most_bytes)
