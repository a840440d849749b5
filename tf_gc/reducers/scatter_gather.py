"""The scatter-gather plan: each replica adds up one shard and sends the sum to all others."""

import functools
from collections.abc import Sequence

import tensorflow as tf

from tf_gc.codecs import Codec
from tf_gc.network.group import Channel, Received, Replica, decode_once_per_host, on_devices
from tf_gc.reducers.plan import FlatPlan, Sums


class ScatterGather(FlatPlan):
    """A reduce-scatter followed by an all-gather (Rabenseifner 2004), with codes for numbers.

    An all-to-all brings the messages for a shard to the replica that owns it, which adds them up
    and encodes the sum. An all-gather brings the sums to all replicas, which so get the same bits.
    With N replicas, each sends (N - 1) / N of a bucket's message and of its sum.
    """

    plan = "scatter_gather"

    @staticmethod
    def bits_sent(codec: Codec, replicas: int) -> float:
        return (replicas - 1) * (codec.bits(1) + codec.bits(replicas)) / replicas

    @staticmethod
    def sums(
        codec: Codec, replicas: Sequence[Replica], ranks: Sequence[int], channel: Channel
    ) -> Sums:
        size = channel.size

        def encode(own: Replica, rank: int) -> tf.Tensor:
            return codec.encode_shards(own.gradients, own.residuals, size, rank)

        def add_up(own: Replica, rank: int, received: Received) -> tf.Tensor:
            return codec.sum_shard(received, own.gradients, own.residuals, size, rank)

        shards = on_devices(replicas, encode, ranks)
        shard_sums = on_devices(replicas, add_up, ranks, channel.all_to_all(shards))
        decode = functools.partial(codec.decode_shards, replicas=size)
        sums = decode_once_per_host(replicas, channel.all_gather_sums(shard_sums), decode)
        return sums, functools.partial(codec.count_sent, shards[0], ranks[0], shard_sums[0])
