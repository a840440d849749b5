"""The compact wire: a channel that packs messages before they travel.

CPUs pack and unpack, also for the GPUs of their host: without NVLink or RDMA between hosts,
messages go there anyway.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.codecs import Codec
from tf_gc.network.group import Bytes, Channel, Received, cpu_of, on_devices
from tf_gc.network.unequal import WORD_BYTES, Send, UnequalLengths

# Messages of fewer bytes are sent as they are: header and table take 0.3 KB, and to tell the others
# the length takes as long as some KB.
_SMALL = 4096

# Messages may be longer than the longest of the step before by one in _SLACK words.
_SLACK = 64


class CompactChannel(Channel):
    """Sends the messages of a codec through another channel, in compact form.

    Nobody who uses it sees a difference. Small messages, and sums that have no compact form, are
    sent as they are. The codes of a column of a tensor are packed together: `like` has the tensors'
    shapes. `notes` keeps how long the bucket's messages were (`Replica.notes`).
    """

    def __init__(
        self,
        channel: Channel,
        codec: Codec,
        ranks: Sequence[int],
        notes: dict[Any, Any],
        like: Sequence[Any] = (),
    ) -> None:
        super().__init__(channel.size)
        self._channel = channel
        self._codec = codec
        self._ranks = ranks
        self._like = like
        self._unequal = UnequalLengths(
            channel, ranks, notes, guess=lambda longest, _: longest + longest // _SLACK
        )

    @property
    def sent_bytes(self) -> Bytes:
        return self._channel.sent_bytes

    @property
    def most_bytes(self) -> Bytes:
        return self._counted + self._unequal.told_bytes

    def all_gather(self, messages: Sequence[tf.Tensor]) -> Sequence[Received]:
        return self._all_gather(self._codec, messages)

    def all_gather_sums(self, sums: Sequence[tf.Tensor]) -> Sequence[Received]:
        return self._all_gather(self._codec.packs_sums, sums)

    def all_to_all(self, rows: Sequence[tf.Tensor]) -> Sequence[Received]:
        self.count(rows[0], self.size - 1)
        if _is_small(rows[0]):
            return self._channel.all_to_all(rows)
        others = self._sent(self._codec, rows, 1, self._channel.all_to_all)

        def unpacked(own: tf.Tensor, others: list[tf.Tensor], rank: int) -> Received:
            return self._unpacked(self._codec, others, own[rank : rank + 1], rank)

        return on_devices(rows, unpacked, others, self._ranks)

    def all_reduce(self, vectors: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        self.count_all_reduce(vectors[0])
        return self._channel.all_reduce(vectors)

    def _all_gather(self, codec: Codec | None, messages: Sequence[tf.Tensor]) -> Sequence[Received]:
        n = messages[0].shape[0]
        self.count(messages[0], n * (self.size - 1))
        if codec is None or _is_small(messages[0]):
            return self._channel.all_gather(messages)
        # All members get the same. If this host has several, they are CPUs, which share memory.
        (others,) = self._sent(codec, messages, n, lambda sent: self._channel.all_gather(sent)[:1])
        return [self._unpacked(codec, others, messages[0], self._ranks[0])] * len(messages)

    def _sent(
        self, codec: Codec, messages: Sequence[tf.Tensor], n: int, send: Send
    ) -> list[list[tf.Tensor]]:
        """Sends messages, int64 [rows, words], in compact form; as `UnequalLengths.sent`."""
        packed = []
        for message in messages:
            with tf.device(cpu_of(message.device)):
                packed.append(codec.pack(message, self._like))
        with tf.device(cpu_of(messages[0].device)):
            return self._unequal.sent(packed, n, send, tuple(messages[0].shape))

    def _unpacked(
        self, codec: Codec, others: Sequence[tf.Tensor], own: tf.Tensor, rank: int
    ) -> Received:
        """Returns the messages of all: `others` of `_sent`, and the member's own, unpacked."""
        with tf.device(cpu_of(own.device)):
            messages = [codec.unpack(compact, own.shape[1]) for compact in others]
        messages.insert(min(rank, 1), own)
        return messages


def _is_small(messages: tf.Tensor) -> bool:
    return bool(messages.shape[1] * WORD_BYTES < _SMALL)
