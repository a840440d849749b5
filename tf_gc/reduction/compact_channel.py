"""The wires that are not packed: a channel that packs messages before they travel."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tf_gc import _compat
from tf_gc.codecs import Codec
from tf_gc.reduction.group import Bytes, Channel, Group, Received, Replica
from tf_gc.reduction.wire import COLUMNS, PACKED

_WORD_BYTES = tf.int64.size

# Messages of fewer bytes are sent as they are. The header and a table take 0.3 KB, and to tell the
# others the length takes as long as some KB.
_SMALL = 4096

# Where a residual keeps the lengths of its bucket's messages.
_ATTRIBUTE = "_tf_gc_lengths"

# Messages may be longer than the longest of the step before by this part of it.
_SLACK = 64

# Sends tensors of one shape, for each member of this host, to the others.
_Send: TypeAlias = Callable[[Sequence[tf.Tensor]], Sequence[Received]]


def open_channel(
    group: Group, codec: Codec, wire: str, bucket: int, replicas: Sequence[Replica], options: Any
) -> Channel:
    """Returns a channel for the messages of a bucket.

    Args:
      group: whose members send them.
      codec: makes the messages.
      wire: one of `tf_gc.reduction.wire.WIRES`.
      bucket: the bucket's number.
      replicas: what each replica of this host contributes to the bucket.
      options: a `tf.distribute.experimental.CommunicationOptions`.
    """
    channel = group.open(bucket, options)
    if wire == PACKED:
        return channel
    residuals = replicas[0].residuals
    like = residuals if wire == COLUMNS else ()
    return CompactChannel(channel, codec, group.ranks, Lengths(residuals[0]), like)


class CompactChannel(Channel):
    """Sends the messages of a codec through another channel, in compact form.

    A collective takes tensors of one shape from all members. All of them send as many words as the
    longest message of the step before had, and some more; if that was too few, which all of them
    see by what they received, they send the rest. Outside of functions the members first tell each
    other how long their longest message is. Members unpack what the others sent, and put in what
    they themselves sent: nobody who uses the channel sees a difference. Small messages, and sums
    that have no compact form, are sent as they are.
    """

    def __init__(
        self,
        channel: Channel,
        codec: Codec,
        ranks: Sequence[int],
        lengths: "Lengths | None" = None,
        like: Sequence[Any] = (),
    ) -> None:
        """Initializes the channel.

        Args:
          channel: carries the compact messages.
          codec: makes the messages.
          ranks: the ranks, among all members, of those on this host.
          lengths: how long the messages of the bucket were in the step before; `None` has the
            members tell each other in each step.
          like: tensors or variables with the shapes of those in the bucket, of which the codes of a
            column are then packed together.
        """
        super().__init__(channel.size)
        self._channel = channel
        self._codec = codec
        self._ranks = ranks
        self._like = like
        self._lengths = lengths

    @property
    def sent_bytes(self) -> Bytes:
        return self._channel.sent_bytes

    @property
    def most_bytes(self) -> Bytes:
        return self._counted

    def all_gather(self, messages: Sequence[tf.Tensor]) -> Sequence[Received]:
        n = messages[0].shape[0]
        self.count(messages[0], n * (self.size - 1))
        if _is_small(messages[0]):
            return self._channel.all_gather(messages)
        # All members get the same, and only CPU devices, which share memory, have this channel.
        (others,) = self._sent(messages, n, lambda sent: self._channel.all_gather(sent)[:1])
        return [self._unpacked(others, messages[0], self._ranks[0])] * len(messages)

    def all_gather_sums(self, sums: Sequence[tf.Tensor]) -> Sequence[Received]:
        if self._codec.compacts_sums:
            return self.all_gather(sums)
        self.count(sums[0], sums[0].shape[0] * (self.size - 1))
        return self._channel.all_gather_sums(sums)

    def all_to_all(self, rows: Sequence[tf.Tensor]) -> Sequence[Received]:
        self.count(rows[0], self.size - 1)
        if _is_small(rows[0]):
            return self._channel.all_to_all(rows)
        received = []
        others = self._sent(rows, 1, self._channel.all_to_all)
        for rank, mine, sent in zip(self._ranks, others, rows, strict=True):
            with tf.device(sent.device):
                received.append(self._unpacked(mine, sent[rank : rank + 1], rank))
        return received

    def _sent(self, messages: Sequence[tf.Tensor], n: int, send: _Send) -> list[list[tf.Tensor]]:
        """Sends messages in compact form.

        Args:
          messages: int64 [rows, words], for each member of this host.
          n: how many rows a member receives of each member.
          send: sends tensors of one shape; at least a row of each member reaches each other one.

        Returns:
          For each member of this host, the compact messages of the members before it and of those
          after it, each [members · n, length]. If there are none, the tensor is left out.
        """
        if self._lengths is None or not self._lengths.are_known(messages[0]):
            received = send(self._packed(messages))
            return self._others(received, n)
        self._counted += _WORD_BYTES * n * (self.size - 1)
        return self._sent_as_before(messages, n, self._lengths.of_next(messages[0]), send)

    def _others(
        self, received: Sequence[Received], n: int, first: int = 0
    ) -> list[list[tf.Tensor]]:
        """Returns what `_sent` returns, from a word of each row on.

        Args:
          received: what the members of this host received, or the first of them.
          n: how many rows a member receives of each member.
          first: the word.
        """
        others = []
        for rank, mine in zip(self._ranks, received, strict=False):
            rows = tf.concat(mine, axis=0)
            spans = ((0, rank * n), ((rank + 1) * n, self.size * n))
            others.append([rows[a:b, first:] for a, b in spans if a < b])
        return others

    def _sent_as_before(
        self, messages: Sequence[tf.Tensor], n: int, remembered: tf.Variable, send: _Send
    ) -> list[list[tf.Tensor]]:
        """Does that with as many words as the last time and, if they were too few, with the rest.

        Before each row goes the length of the sender's longest row. All members receive a row of
        every member, and so know the length of the longest one of all.
        """
        rows, words = messages[0].shape
        length = remembered.read_value()
        packed, heads = [], []
        for message in messages:
            with tf.device(message.device):
                compact, lengths = self._codec.pack(message, self._like)
                own = tf.repeat(tf.reduce_max(lengths), rows)[:, None]
                packed.append(compact)
                heads.append(tf.concat([own, compact[:, :length]], axis=1))
        received = send(heads)
        longest = tf.reduce_max(tf.concat(received[0], axis=0)[:, 0])
        starts = self._others(received, n, first=1)

        def with_rest() -> tuple[list[list[tf.Tensor]], tf.Tensor]:
            rest = []
            for compact in packed:
                with tf.device(compact.device):
                    rest.append(compact[:, length:longest])
            ends, sent = self._channel.counted_apart(lambda: send(rest))
            whole = [
                [tf.concat(parts, axis=1) for parts in zip(*mine, strict=True)]
                for mine in zip(starts, self._others(ends, n), strict=True)
            ]
            return whole, tf.cast(sent, tf.int64)

        whole, sent = tf.cond(longest > length, with_rest, lambda: (starts, tf.zeros([], tf.int64)))
        self._channel.count_as_well(sent)
        more = longest + longest // _SLACK
        remembered.assign(tf.minimum(more, words), read_value=False)
        return whole

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
                compact, words = self._codec.pack(message, self._like)
                packed.append(compact)
                lengths.append(tf.reshape(tf.reduce_max(words), [1, 1]))
        self._counted += _WORD_BYTES * (self.size - 1)
        cut = []
        for compact, of_all in zip(packed, self._channel.all_gather(lengths), strict=True):
            with tf.device(compact.device):
                cut.append(compact[:, : tf.reduce_max(tf.concat(of_all, axis=0))])
        return cut

    def _unpacked(self, others: Sequence[tf.Tensor], own: tf.Tensor, rank: int) -> Received:
        """Returns the messages that a member received.

        Args:
          others: what `_sent` returns for the member.
          own: its own message, [n, words], as it was before it was packed.
          rank: the member's rank.
        """
        with tf.device(own.device):
            words = own.shape[1]
            if words is None:
                words = tf.shape(own, tf.int64)[1]
            messages = [self._codec.unpack(compact, words) for compact in others]
        messages.insert(min(rank, 1), own)
        return messages


class Lengths:
    """How long the messages of a bucket were in the step before.

    All members have to agree on that, whenever and whatever they trace: a worker whose last batch
    is smaller traces its step once more than the others. So the lengths belong to the bucket's
    first residual, as long as that lives, and not to a function. The members sum the gradients of a
    model in the same order, and what they remember follows from what all of them have received.
    """

    def __init__(self, residual: Any) -> None:
        """Initializes the object.

        Args:
          residual: of the bucket's first variable, on this host's first replica.
        """
        self._residual = residual
        self._asked = 0

    def are_known(self, message: tf.Tensor) -> bool:
        """Whether lengths can be remembered: in functions, for messages of one length."""
        if tf.executing_eagerly() or not _compat.builds_function():
            return False
        with tf.init_scope():
            in_session = not tf.executing_eagerly()  # which would have to initialize a variable
        return message.shape.is_fully_defined() and not in_session

    def of_next(self, message: tf.Tensor) -> tf.Variable:
        """Returns how long the next message of a reduction was in the step before.

        An int64 scalar, 0 before the first step.
        """
        if not hasattr(self._residual, _ATTRIBUTE):
            setattr(self._residual, _ATTRIBUTE, {})
        known = getattr(self._residual, _ATTRIBUTE)
        key = (self._asked, *message.shape)
        self._asked += 1
        if key not in known:
            with tf.init_scope(), tf.device("CPU:0"):
                known[key] = _compat.OwnVariable(tf.zeros([], tf.int64), trainable=False)
        return known[key]


def _is_small(messages: tf.Tensor) -> bool:
    words = messages.shape[1]
    return words is not None and words * _WORD_BYTES < _SMALL
