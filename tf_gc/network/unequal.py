"""The gather of unequal lengths: messages that are as long as they happen to be.

A collective takes tensors of one shape from all members. All of them send as many words as the
messages of the steps before suggest; if that was too few, which all of them see by what they
received, they send the rest.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tf_gc import _compat
from tf_gc.network.group import Bytes, Channel, Received, on_devices

WORD_BYTES = tf.int64.size

# Sends tensors of one shape, for each member of this host, to the others.
Send: TypeAlias = Callable[[Sequence[tf.Tensor]], Sequence[Received]]


@dataclasses.dataclass(eq=False)
class UnequalLengths:
    """Sends messages of unequal lengths through a channel.

    All members have to agree on how long the messages of a bucket were, whenever and whatever they
    trace: a worker whose last batch is smaller traces its step once more than the others. So the
    lengths belong to the bucket's first variable and its stream, as long as both live
    (`Replica.notes`), and not to a function. The members sum the gradients of a model in the same
    order, and each length follows from what all of them have received.

    `guess` says how many words to send in the next step, given the length of the longest message
    and how many were sent, int64 scalars. `told_bytes` are the bytes that each member has sent so
    far to tell the others how long its messages are.
    """

    channel: Channel
    ranks: Sequence[int]
    notes: dict[Any, Any]
    guess: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    told_bytes: Bytes = 0
    _messages: int = 0

    def sent(
        self,
        messages: Sequence[tuple[tf.Tensor, tf.Tensor]],
        n: int,
        send: Send,
        kind: tuple[Any, ...],
    ) -> list[list[tf.Tensor]]:
        """Sends messages to the other members.

        Args:
          messages: for each member of this host, int64 [rows, n], a message in the first words of
            each row, and the lengths of these messages, int64 [rows]. A row whose number of words
            is known has as many as the longest message can have.
          n: how many rows a member receives of each member.
          send: sends tensors of one shape; at least a row of each member reaches each other one.
          kind: tells messages of different kinds apart.

        Returns:
          For each member of this host (or the first of them, if `send` returns what that received),
          the messages of the members before it and of those after it, each [members · n, length].
          If there are none, the tensor is left out.
        """
        self.told_bytes += WORD_BYTES * n * (self.channel.size - 1)
        key = (self._messages, *kind)
        self._messages += 1
        if key not in self.notes:
            with tf.init_scope(), tf.device("CPU:0"):
                self.notes[key] = _compat.OwnVariable(tf.zeros([], tf.int64), trainable=False)
        remembered = self.notes[key]
        length = remembered.read_value()

        # Before each row goes the length of the sender's longest row. All members receive a row of
        # every member, and so know the length of the longest one of all.
        def head(message: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
            own = tf.repeat(tf.reduce_max(lengths), message.shape[0])[:, None]
            return tf.concat([own, *_words(message, 0, length)], axis=1)

        rows, lengths = zip(*messages, strict=True)
        received = send(on_devices(rows, head, lengths))
        longest = tf.reduce_max(tf.concat(received[0], axis=0)[:, 0])
        starts = self._others(received, n, skip=1)

        def with_rest() -> tuple[list[list[tf.Tensor]], tf.Tensor]:
            rest = on_devices(rows, lambda row: tf.concat(_words(row, length, longest), axis=1))
            ends, sent = self.channel.counted_apart(lambda: send(rest))
            whole = [
                [tf.concat(parts, axis=1) for parts in zip(*mine, strict=True)]
                for mine in zip(starts, self._others(ends, n), strict=True)
            ]
            return whole, tf.cast(sent, tf.int64)

        whole, sent = tf.cond(longest > length, with_rest, lambda: (starts, tf.zeros([], tf.int64)))
        self.channel.count_as_well(sent)
        remembered.assign(self.guess(longest, length), read_value=False)
        return whole

    def _others(self, received: Sequence[Received], n: int, skip: int = 0) -> list[list[tf.Tensor]]:
        """Returns what `sent` does, given what the members received, without `skip` words."""
        others = []
        for rank, mine in zip(self.ranks, received, strict=False):
            rows = tf.concat(mine, axis=0)
            spans = ((0, rank * n), ((rank + 1) * n, self.channel.size * n))
            others.append([rows[a:b, skip:] for a, b in spans if a < b])
        return others


def _words(message: tf.Tensor, start: int | tf.Tensor, end: tf.Tensor) -> list[tf.Tensor]:
    """Returns the words [start, end) of each row, with zeros where a row has no more words."""
    words = message[:, start:end]
    if message.shape[1] is not None and not tf.executing_eagerly():
        return [words]
    missing = tf.maximum(end - start, 0) - tf.shape(words, tf.int64)[1]
    return [words, tf.zeros(tf.stack([message.shape[0], missing]), tf.int64)]
