"""The compact wire: a channel that packs messages before they travel."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.codecs import Codec
from tf_gc.reduction.group import Bytes, Channel, Group, Received
from tf_gc.reduction.wire import COMPACT

_WORD_BYTES = tf.int64.size

# Messages of fewer bytes are sent as they are. The tables of a compact message take 0.8 KB, and to
# tell the others its length takes as long as some KB.
_SMALL = 4096


def open_channel(group: Group, codec: Codec, wire: str, bucket: int, options: Any) -> Channel:
    """Returns a channel for the messages of a bucket.

    Args:
      group: whose members send them.
      codec: makes the messages.
      wire: one of `tf_gc.reduction.wire.WIRES`.
      bucket: the bucket's number.
      options: a `tf.distribute.experimental.CommunicationOptions`.
    """
    channel = group.open(bucket, options)
    return CompactChannel(channel, codec) if wire == COMPACT else channel


class CompactChannel(Channel):
    """Sends the messages of a codec through another channel, in compact form.

    A collective takes tensors of one shape from all members. So the members first tell each other
    how long their longest compact message is, and all of them then send so many words. What arrives
    is unpacked: nobody who uses the channel sees a difference. Small messages, and sums that have
    no compact form, are sent as they are.
    """

    def __init__(self, channel: Channel, codec: Codec) -> None:
        """Initializes the channel.

        Args:
          channel: carries the compact messages.
          codec: makes the messages.
        """
        super().__init__(channel.size)
        self._channel = channel
        self._codec = codec

    @property
    def sent_bytes(self) -> Bytes:
        return self._channel.sent_bytes

    @property
    def most_bytes(self) -> Bytes:
        return self._counted

    def all_gather(self, messages: Sequence[tf.Tensor]) -> Sequence[Received]:
        self.count(messages[0], messages[0].shape[0] * (self.size - 1))
        if _is_small(messages[0]):
            return self._channel.all_gather(messages)
        received = self._channel.all_gather(self._packed(messages))
        # All members get the same, and only CPU devices, which share memory, have this channel.
        return [self._unpacked(received[0], messages[0])] * len(messages)

    def all_gather_sums(self, sums: Sequence[tf.Tensor]) -> Sequence[Received]:
        if self._codec.compacts_sums:
            return self.all_gather(sums)
        self.count(sums[0], sums[0].shape[0] * (self.size - 1))
        return self._channel.all_gather_sums(sums)

    def all_to_all(self, rows: Sequence[tf.Tensor]) -> Sequence[Received]:
        self.count(rows[0], self.size - 1)
        if _is_small(rows[0]):
            return self._channel.all_to_all(rows)
        received = self._channel.all_to_all(self._packed(rows))
        return [self._unpacked(mine, sent) for mine, sent in zip(received, rows, strict=True)]

    def _packed(self, messages: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the compact messages of this host's members, all members' as long as each other.

        Args:
          messages: int64 [rows, words], for each member of this host.

        Returns:
          For each member, int64 [rows, the length of the longest one of all members].
        """
        packed, lengths = [], []
        for message in messages:
            with tf.device(message.device):
                compact, words = self._codec.pack(message)
                packed.append(compact)
                lengths.append(tf.reshape(tf.reduce_max(words), [1, 1]))
        self._counted += _WORD_BYTES * (self.size - 1)
        cut = []
        for compact, of_all in zip(packed, self._channel.all_gather(lengths), strict=True):
            with tf.device(compact.device):
                cut.append(compact[:, : tf.reduce_max(tf.concat(of_all, axis=0))])
        return cut

    def _unpacked(self, received: Received, like: tf.Tensor) -> Received:
        """Returns the messages in what a member received.

        Args:
          received: compact messages.
          like: a message of that length, on the member's device.
        """
        with tf.device(like.device):
            words = like.shape[1]
            if words is None:
                words = tf.shape(like, tf.int64)[1]
            return [self._codec.unpack(compact, words) for compact in received]


def _is_small(messages: tf.Tensor) -> bool:
    words = messages.shape[1]
    return words is not None and words * _WORD_BYTES < _SMALL
