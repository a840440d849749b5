"""The all-gather plan: every replica gets the messages of all replicas and adds them up."""

import functools
from collections.abc import Sequence

from tf_gc.codecs import Codec
from tf_gc.network.group import Channel, Replica, decode_once_per_host, on_devices
from tf_gc.reducers.plan import FlatPlan, Sums


class AllGather(FlatPlan):
    """Every replica adds the same messages in the same order, so all get the same bits."""

    plan = "all_gather"

    @staticmethod
    def bits_sent(codec: Codec, replicas: int) -> float:
        return (replicas - 1) * codec.bits(1)

    @staticmethod
    def sums(
        codec: Codec, replicas: Sequence[Replica], ranks: Sequence[int], channel: Channel
    ) -> Sums:
        del ranks
        messages = on_devices(replicas, lambda r: codec.encode(r.gradients, r.residuals))
        sums = decode_once_per_host(replicas, channel.all_gather(messages), codec.decode)
        return sums, functools.partial(codec.count_sent, messages[0])
