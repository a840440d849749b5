"""The scatter-gather plan: each replica adds up one shard and sends the sum to all others."""

import functools
from collections.abc import Sequence

import tensorflow as tf

from tf_gc.codecs import Codec
from tf_gc.network.group import Channel, Member, Network, decode_once_per_host
from tf_gc.reducers.plan import FlatPlan, Sums


class ScatterGather(FlatPlan):
    """Sums a bucket over a group in two stages, both compressed.

    A bucket is cut into as many shards as there are members, and each member owns one shard. An
    all-to-all brings the messages for a shard to its owner, which adds them up and encodes the
    sum. An all-gather brings the sums to all members. With N members, each sends (N - 1) / N of a
    bucket's message and of its sum. This is a reduce-scatter followed by an all-gather
    (Rabenseifner 2004), with codes instead of numbers. All members decode the same sums, so they
    get the same bits.
    """

    name = "scatter_gather"
    collectives = 2
    by_shards = True

    @classmethod
    def is_one_of_the_others(cls, network: Network) -> bool:
        # Two hosts send each other no less than in an all-gather, and round the sums as well.
        return network.hosts == 2 and len(network.devices) == 1

    @staticmethod
    def bits_sent(codec: Codec, members: int) -> float:
        return (members - 1) * (codec.bits(1) + codec.bits(members)) / members

    @staticmethod
    def rounds(members: int) -> int:
        # In TensorFlow's all-to-all a member sends to all others at once; then comes an all-gather.
        return 1 + (members - 1)

    @staticmethod
    def sums(codec: Codec, members: Sequence[Member], channel: Channel) -> Sums:
        size = channel.size
        shards = []
        for member in members:
            with tf.device(member.device):
                shards.append(
                    codec.encode_shards(member.gradients, member.residuals, size, member.rank)
                )
        shard_sums = []
        for member, received in zip(members, channel.all_to_all(shards), strict=True):
            with tf.device(member.device):
                shard_sums.append(
                    codec.sum_shard(received, member.gradients, member.residuals, size, member.rank)
                )
        decode = functools.partial(codec.decode_shards, replicas=size)
        sums = decode_once_per_host(members, channel.all_gather_sums(shard_sums), decode)
        return sums, functools.partial(codec.count_sent, shards[0], members[0].rank, shard_sums[0])
