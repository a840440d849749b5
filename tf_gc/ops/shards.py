"""Wrappers of the ops that sum a bucket by shards, each shard on the replica that owns it."""

from collections.abc import Sequence

import tensorflow as tf

from tf_gc.ops import _loader
from tf_gc.ops._arguments import as_list, attributes, handles, non_empty, number


def reencode(
    messages: tf.Tensor | Sequence[tf.Tensor],
    gradients: Sequence[tf.Tensor],
    residuals: Sequence[tf.Variable],
    shard: int,
    shards: int,
    codec: str = "two_bit",
    sum_codec: str | None = None,
) -> tf.Tensor:
    """Sums a shard over all replicas, encodes the sum and updates the owner's residuals.

    For each element of the shard, with `p = (gradient + residual) + sum of the other replicas'
    messages` in float32, `p` is sent as `encode` with `"auto"` would send it, and the residual
    becomes what that leaves. So one residual keeps what is left of the owner's own gradient and of
    the sum (error feedback on both stages, as in DoubleSqueeze, Tang et al. 2019). An element that
    is not finite, here or in a message, is marked as not finite and keeps its residual.

    Args:
      messages: int64, shape [rows, words] (or a list of such tensors): the messages with this
        shard that `encode` made, a row for each replica. Row `shard`, the owner's, is not read.
      gradients: the owner's gradients, the whole bucket.
      residuals: their residuals, after `encode` with `skip=shard`. Those outside the shard stay as
        they are.
      shard: the number of the shard, and of the row of the replica that owns it.
      shards: the number of shards, and of replicas.
      codec: the codec that the messages were encoded with.
      sum_codec: the codec that the sum is encoded with: the same one (`None`), or a finer one,
        which is `"three_bit"` for one bit and two bits, `"four_bit"` for three.

    Returns:
      The message: int64, shape [1, words].

    Raises:
      ValueError: if the lists are empty, or gradients and residuals differ in length.
      tf.errors.InvalidArgumentError: if no codec has that name, a message has another length, wire
        version, codec or number of blocks, there are not `shards` messages, no shard has the
        number `shard`, `sum_codec` is another codec, or a residual does not fit its gradient
        or occurs twice.
    """
    return _loader.load().tf_gc_reencode(
        messages=as_list(messages),
        gradients=non_empty(gradients, "gradients"),
        residuals=handles(residuals, gradients),
        codec=codec,
        sum_codec=codec if sum_codec is None else sum_codec,
        shard=shard,
        shards=shards,
    )


def count(
    messages: tf.Tensor | Sequence[tf.Tensor],
    replicas: int,
    codec: str,
    threshold: float | str,
) -> tf.Tensor:
    """Sums messages with a fixed threshold, without loss.

    The sum of an element is a whole number from -replicas to replicas, in units of what the codec
    sends: the threshold with `"two_bit"`, 1 with `"one_bit"`. It is sent in 4 bits for up to 7
    replicas, 8 for up to 127, 16 for up to 32767.

    Args:
      messages: int64, shape [rows, words] (or a list of such tensors): the messages with one
        shard that `encode` made, a row for each replica.
      replicas: the number of rows.
      codec: the codec that the messages were encoded with.
      threshold: the threshold that the messages were encoded with, a number.

    Returns:
      The message with the sum: int64, shape [1, words].

    Raises:
      ValueError: if the list is empty or the threshold is a string.
      tf.errors.InvalidArgumentError: if no codec has that name, a message has another length, wire
        version, codec or threshold, there are not `replicas` messages, or the threshold or
        `replicas` is out of range.
    """
    return _loader.load().tf_gc_count(
        messages=as_list(messages), codec=codec, threshold=number(threshold), replicas=replicas
    )


def decode_shards(
    messages: tf.Tensor | Sequence[tf.Tensor],
    like: Sequence[tf.Tensor],
    codec: str = "two_bit",
    threshold: float | str = "auto",
    *,
    shards: int,
    replicas: int,
) -> list[tf.Tensor]:
    """Decodes the sums of a bucket's shards.

    Args:
      messages: int64, shape [rows, words] (or a list of such tensors): a row for each shard, in
        order, made by `reencode` for `"auto"`, by `count` for a number.
      like: tensors with the dtype and the shapes of the bucket's gradients. Their values are
        not read, and where nothing else needs them their buffers become the results'.
      codec: the codec that the sums were encoded with; with a fixed threshold, the gradients.
      threshold: the threshold that the gradients were encoded with.
      shards: the number of shards.
      replicas: the number of replicas that were summed.

    Returns:
      The sums, with the dtype and the shapes of `like`. With a fixed threshold they equal, bit for
      bit, what `decode` returns for the messages of all replicas. Elements marked as not finite
      are NaN.

    Raises:
      ValueError: if a list is empty, or the threshold is a string other than `"auto"`.
      tf.errors.InvalidArgumentError: if no codec has that name, a message has another length, wire
        version, codec, threshold or number of blocks, there are not `shards` messages, or the
        threshold or `replicas` is out of range.
    """
    return _loader.load().tf_gc_decode_shards(
        messages=as_list(messages),
        like=non_empty(like, "like"),
        **attributes(codec, threshold),
        shards=shards,
        replicas=replicas,
    )
