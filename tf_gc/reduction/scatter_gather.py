"""The scatter-gather plan: each replica adds up one shard and sends the sum to all others."""

import functools
from collections.abc import Sequence

import tensorflow as tf

from tf_gc.codecs import MessageCodec
from tf_gc.reduction.exchange import Exchange, Group, decode_once_per_host, message_bytes


def scatter_gather_sum(
    codec: MessageCodec,
    gradients: Sequence[Sequence[tf.Tensor]],
    residuals: Sequence[Sequence[tf.Variable]],
    group: Group,
    exchange: Exchange,
) -> tuple[list[list[tf.Tensor]], int]:
    """Sums a bucket over a group in two stages, both compressed.

    A bucket is cut into as many shards as there are members, and each member owns one shard. An
    all-to-all brings the messages for a shard to its owner, which adds them up and encodes the
    sum. An all-gather brings the sums to all members. With N members, each sends (N - 1) / N of a
    bucket's message and of its sum. This is a reduce-scatter followed by an all-gather
    (Rabenseifner 2004), with codes instead of numbers. All members decode the same sums, so they
    get the same bits.

    Args:
      codec: the codec.
      gradients: for each local member, the bucket's tensors.
      residuals: for each local member, the residuals of its tensors, on its device.
      group: the members.
      exchange: moves messages to the other members.

    Returns:
      For each local member the bucket's sums on its device, and the bytes that a member sends.
    """
    local = list(zip(group.devices, group.ranks, gradients, residuals, strict=True))
    shards = []
    for device, rank, tensors, state in local:
        with tf.device(device):
            shards.append(codec.encode_shards(tensors, state, group.size, rank))
    shard_sums = []
    for member, received in zip(local, exchange.all_to_all(shards), strict=True):
        device, rank, tensors, state = member
        with tf.device(device):
            shard_sums.append(codec.sum_shard(received, tensors, state, group.size, rank))
    gathered = exchange.all_gather(shard_sums)
    decode = functools.partial(codec.decode_shards, replicas=group.size)
    sums = decode_once_per_host(group.devices, gathered, gradients, decode)
    sent = message_bytes(shards[0]) // group.size + message_bytes(shard_sums[0])
    return sums, (group.size - 1) * sent
