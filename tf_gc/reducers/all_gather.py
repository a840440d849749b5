"""The all-gather plan: every replica gets the messages of all replicas and adds them up."""

import functools
from collections.abc import Sequence

import tensorflow as tf

from tf_gc.codecs import Codec
from tf_gc.network.group import Channel, Member, decode_once_per_host
from tf_gc.reducers.plan import FlatPlan, Sums


class AllGather(FlatPlan):
    """Every member encodes, gets the messages of all members, and decodes their sum.

    Every member adds the same messages in the same order, so all members get the same bits.
    """

    name = "all_gather"
    collectives = 1
    by_shards = False

    @staticmethod
    def bits_sent(codec: Codec, members: int) -> float:
        return (members - 1) * codec.bits(1)

    @staticmethod
    def rounds(members: int) -> int:
        return members - 1

    @staticmethod
    def sums(codec: Codec, members: Sequence[Member], channel: Channel) -> Sums:
        messages = []
        for member in members:
            with tf.device(member.device):
                messages.append(codec.encode(member.gradients, member.residuals))
        sums = decode_once_per_host(members, channel.all_gather(messages), codec.decode)
        return sums, functools.partial(codec.count_sent, messages[0])
