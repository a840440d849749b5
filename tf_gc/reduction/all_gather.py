"""The all-gather plan: every replica gets the messages of all replicas and adds them up."""

from collections.abc import Sequence

import tensorflow as tf

from tf_gc.codecs import MessageCodec
from tf_gc.reduction.exchange import Exchange, Group, decode_once_per_host, message_bytes


def all_gather_sum(
    codec: MessageCodec,
    gradients: Sequence[Sequence[tf.Tensor]],
    residuals: Sequence[Sequence[tf.Variable]],
    group: Group,
    exchange: Exchange,
) -> tuple[list[list[tf.Tensor]], int]:
    """Sums a bucket over a group: every member encodes, gets all messages, and decodes them.

    Every member adds the same messages in the same order, so all members get the same bits.

    Args:
      codec: the codec.
      gradients: for each local member, the bucket's tensors.
      residuals: for each local member, the residuals of its tensors, on its device.
      group: the members.
      exchange: moves messages to the other members.

    Returns:
      For each local member the bucket's sums on its device, and the bytes that a member sends.
    """
    messages = []
    for device, tensors, state in zip(group.devices, gradients, residuals, strict=True):
        with tf.device(device):
            messages.append(codec.encode(tensors, state))
    received = exchange.all_gather(messages)
    sums = decode_once_per_host(group.devices, received, gradients, codec.decode)
    return sums, (group.size - 1) * message_bytes(messages[0])
