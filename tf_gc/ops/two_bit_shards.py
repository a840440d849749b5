"""Wrappers of the ops that sum a bucket by shards, each shard on the replica that owns it."""

from collections.abc import Sequence

import tensorflow as tf

from tf_gc.ops import _library
from tf_gc.ops._messages import as_list, handles, message_bits, non_empty
from tf_gc.ops.two_bit import attribute

# As in custom_ops/lib/wire/wire.h.
_FIXED, _AUTO = 1, 2


def two_bit_reencode(
    messages: tf.Tensor | Sequence[tf.Tensor],
    gradients: Sequence[tf.Tensor],
    residuals: Sequence[tf.Variable],
    shard: int,
    shards: int,
    layers: int = 1,
) -> tf.Tensor:
    """Sums a shard over all replicas, encodes the sum and updates the owner's residuals.

    For each element of the shard, with `p = (gradient + residual) + sum of the other replicas'
    messages` in float32, `p` is sent as `two_bit_encode` with `"auto"` would send it, and the
    residual becomes what that leaves. So one residual keeps what is left of the owner's own
    gradient and of the sum (error feedback on both stages, as in DoubleSqueeze, Tang et al. 2019).
    An element that is not finite, here or in a message, is marked as not finite and keeps its
    residual.

    Args:
      messages: int64, shape [rows, words] (or a list of such tensors): the messages with this
        shard that `two_bit_encode` made, a row for each replica. Row `shard`, the owner's, is
        not read.
      gradients: the owner's gradients, the whole bucket.
      residuals: their residuals, after `two_bit_encode` with `skip=shard`. Those outside the
        shard stay as they are.
      shard: the number of the shard, and of the row of the replica that owns it.
      shards: the number of shards, and of replicas.
      layers: 1, or 2 for a second message that encodes what the first one leaves of the sum
        (residual quantization, Juang and Gray 1982). Both messages mark an element that is not
        finite.

    Returns:
      The messages: int64, shape [layers, words].

    Raises:
      ValueError: if the lists are empty, or gradients and residuals differ in length.
      tf.errors.InvalidArgumentError: if a message has another length, wire version, codec or
        number of blocks, there are not `shards` messages, no shard has the number `shard`,
        `layers` is neither 1 nor 2, or a residual does not fit its gradient or occurs twice.
    """
    return _library.load().tf_gc_two_bit_reencode(
        messages=as_list(messages),
        gradients=non_empty(gradients, "gradients"),
        residuals=handles(residuals, gradients),
        shard=shard,
        shards=shards,
        layers=layers,
    )


def two_bit_count(
    messages: tf.Tensor | Sequence[tf.Tensor], replicas: int, threshold: float | str
) -> tf.Tensor:
    """Sums messages with a fixed threshold, without loss.

    The sum of an element is a whole number from -replicas to replicas, in units of the
    threshold. It is sent in 4 bits for up to 7 replicas, 8 for up to 127, 16 for up to 32767.

    Args:
      messages: int64, shape [rows, words] (or a list of such tensors): the messages with one
        shard that `two_bit_encode` made, a row for each replica.
      replicas: the number of rows.
      threshold: the threshold that the messages were encoded with, a number.

    Returns:
      The message with the sum: int64, shape [1, words].

    Raises:
      ValueError: if the list is empty or the threshold is `"auto"`.
      tf.errors.InvalidArgumentError: if a message has another length, wire version, codec or
        threshold, there are not `replicas` messages, or `replicas` is out of range.
    """
    if threshold == "auto":
        raise ValueError('threshold must be a positive number, got "auto"')
    return _library.load().tf_gc_two_bit_count(
        messages=as_list(messages), threshold=attribute(threshold), replicas=replicas
    )


def two_bit_decode_shards(
    messages: tf.Tensor | Sequence[tf.Tensor],
    like: Sequence[tf.Tensor],
    threshold: float | str = "auto",
    *,
    shards: int,
    replicas: int,
    layers: int = 1,
) -> list[tf.Tensor]:
    """Decodes the sums of a bucket's shards.

    Args:
      messages: int64, shape [rows, words] (or a list of such tensors): `layers` rows for each
        shard, in order, made by `two_bit_reencode` for `"auto"`, by `two_bit_count` for a number.
      like: tensors with the dtype and the shapes of the bucket's gradients. Their values are
        not read, and where nothing else needs them their buffers become the results'.
      threshold: the threshold that the gradients were encoded with.
      shards: the number of shards.
      replicas: the number of replicas that were summed.
      layers: how many rows each shard has, whose values are added up; 1 with a fixed threshold.

    Returns:
      The sums, with the dtype and the shapes of `like`. With a fixed threshold they equal, bit for
      bit, what `two_bit_decode` returns for the messages of all replicas. An element is NaN if it
      was marked as not finite.

    Raises:
      ValueError: if a list is empty.
      tf.errors.InvalidArgumentError: if a message has another length, wire version, codec,
        threshold or number of blocks, there are not `shards` times `layers` messages, or
        `replicas` or `layers` is out of range.
    """
    return _library.load().tf_gc_two_bit_decode_shards(
        messages=as_list(messages),
        like=non_empty(like, "like"),
        threshold=attribute(threshold),
        shards=shards,
        replicas=replicas,
        layers=layers,
    )


def two_bit_message_bits(replicas: int, threshold: float | str = "auto") -> float:
    """Returns how many bits an element takes in a message with a sum over `replicas` replicas.

    Args:
      replicas: the number of replicas; 1 for the messages of `two_bit_encode`.
      threshold: `"auto"` or a number.

    Raises:
      ValueError: if there are no replicas or, with a fixed threshold, more than 32767.
    """
    return message_bits(_AUTO if threshold == "auto" else _FIXED, replicas, threshold)
