"""Wrappers of the one-bit ops: lists in, lists out, `"auto"` spelled out."""

from collections.abc import Sequence

import tensorflow as tf

from tf_gc.ops import _library
from tf_gc.ops._messages import NO_SHARD, as_list, handles, message_bits, non_empty

# As in custom_ops/lib/wire/wire.h.
_FIXED, _AUTO = 6, 7


def one_bit_encode(
    gradients: Sequence[tf.Tensor],
    residuals: Sequence[tf.Variable],
    threshold: float | str = "auto",
    shards: int = 1,
    skip: int | None = None,
) -> tf.Tensor:
    """Encodes a bucket of gradients in one bit an element and updates its residuals.

    For each element, with `p = gradient + residual`, `+s` or `-s` is sent and the residual
    becomes `p` minus what was sent (error feedback, as in 1-bit SGD, Seide et al. 2014). With
    `"auto"` each block of 128 consecutive elements of a flattened tensor has its own `s`, its
    mean `|p|`, rounded to bfloat16, and sends the sign of `p` (EF-SignSGD, Karimireddy et al.
    2019). With a number, `+1` is sent where `p` is greater and `-1` elsewhere (MXNet's 1-bit
    gradient compression). A block with an element that is not finite, or not below 2^120 in
    magnitude, is marked as not finite and keeps its residuals.

    Args:
      gradients: tensors of one dtype (float32, float16 or bfloat16) and any shapes; at least
        one.
      residuals: one initialized float32 `tf.Variable` (or its handle) for each gradient, of
        its shape, on its device.
      threshold: `"auto"`, or a number in (-2^120, 2^120).
      shards: how many shards of whole blocks the bucket is cut into, each with a message of its
        own. All shards have the same length: the bucket's blocks divided by `shards`, rounded up.
      skip: the number of a shard that is not encoded, with `"auto"` only. Its message has zeros,
        and its residuals stay as they are.

    Returns:
      The messages: int64, shape [shards, words].

    Raises:
      ValueError: if the lists are empty or differ in length, or the threshold is a string other
        than `"auto"`.
      tf.errors.InvalidArgumentError: if a residual does not fit its gradient or occurs twice,
        or the threshold or a number is out of range.
    """
    return _library.load().tf_gc_one_bit_encode(
        gradients=non_empty(gradients, "gradients"),
        residuals=handles(residuals, gradients),
        **_attributes(threshold),
        shards=shards,
        skip=NO_SHARD if skip is None else skip,
    )


def one_bit_decode(
    messages: tf.Tensor | Sequence[tf.Tensor],
    like: Sequence[tf.Tensor],
    threshold: float | str = "auto",
) -> list[tf.Tensor]:
    """Decodes the messages of all replicas for one bucket and adds them in their order.

    Args:
      messages: int64, shape [rows, words] (or a list of such tensors): the messages that
        `one_bit_encode` made of the same bucket, a row for each replica.
      like: tensors with the dtype and the shapes of the bucket's gradients. Their values are
        not read, and where nothing else needs them their buffers become the results'.
      threshold: the threshold that the messages were encoded with.

    Returns:
      The sums, with the dtype and the shapes of `like`. A block is NaN if any replica marked it
      as not finite.

    Raises:
      ValueError: if a list is empty.
      tf.errors.InvalidArgumentError: if a message has another length, wire version, codec,
        threshold or number of blocks.
    """
    return _library.load().tf_gc_one_bit_decode(
        messages=as_list(messages), like=non_empty(like, "like"), **_attributes(threshold)
    )


def one_bit_reencode(
    messages: tf.Tensor | Sequence[tf.Tensor],
    gradients: Sequence[tf.Tensor],
    residuals: Sequence[tf.Variable],
    shard: int,
    shards: int,
    layers: int = 1,
) -> tf.Tensor:
    """Sums a shard over all replicas, encodes the sum and updates the owner's residuals.

    For each element of the shard, with `p = (gradient + residual) + sum of the other replicas'
    messages` in float32, `p` is sent as `one_bit_encode` with `"auto"` would send it, and the
    residual becomes what that leaves. A block with an element that is not finite, here or in a
    message, is marked as not finite and keeps its residuals.

    Args:
      messages: int64, shape [rows, words] (or a list of such tensors): the messages with this
        shard that `one_bit_encode` made, a row for each replica. Row `shard`, the owner's, is
        not read.
      gradients: the owner's gradients, the whole bucket.
      residuals: their residuals, after `one_bit_encode` with `skip=shard`. Those outside the
        shard stay as they are.
      shard: the number of the shard, and of the row of the replica that owns it.
      shards: the number of shards, and of replicas.
      layers: 1, or 2 for a second message that encodes what the first one leaves of the sum
        (residual quantization, Juang and Gray 1982). Both messages mark a block that is not
        finite.

    Returns:
      The messages: int64, shape [layers, words].

    Raises:
      ValueError: if the lists are empty, or gradients and residuals differ in length.
      tf.errors.InvalidArgumentError: if a message has another length, wire version, codec or
        number of blocks, there are not `shards` messages, no shard has the number `shard`,
        `layers` is neither 1 nor 2, or a residual does not fit its gradient or occurs twice.
    """
    return _library.load().tf_gc_one_bit_reencode(
        messages=as_list(messages),
        gradients=non_empty(gradients, "gradients"),
        residuals=handles(residuals, gradients),
        shard=shard,
        shards=shards,
        layers=layers,
    )


def one_bit_count(
    messages: tf.Tensor | Sequence[tf.Tensor], replicas: int, threshold: float | str
) -> tf.Tensor:
    """Sums messages with a fixed threshold, without loss.

    The sum of an element is a whole number from -replicas to replicas. It is sent in 4 bits for
    up to 7 replicas, 8 for up to 127, 16 for up to 32767.

    Args:
      messages: int64, shape [rows, words] (or a list of such tensors): the messages with one
        shard that `one_bit_encode` made, a row for each replica.
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
        raise ValueError('threshold must be a number, got "auto"')
    return _library.load().tf_gc_one_bit_count(
        messages=as_list(messages), replicas=replicas, **_attributes(threshold)
    )


def one_bit_decode_shards(
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
        shard, in order, made by `one_bit_reencode` for `"auto"`, by `one_bit_count` for a number.
      like: tensors with the dtype and the shapes of the bucket's gradients. Their values are
        not read, and where nothing else needs them their buffers become the results'.
      threshold: the threshold that the gradients were encoded with.
      shards: the number of shards.
      replicas: the number of replicas that were summed.
      layers: how many rows each shard has, whose values are added up; 1 with a fixed threshold.

    Returns:
      The sums, with the dtype and the shapes of `like`. With a fixed threshold they equal, bit for
      bit, what `one_bit_decode` returns for the messages of all replicas. A block is NaN if it was
      marked as not finite.

    Raises:
      ValueError: if a list is empty.
      tf.errors.InvalidArgumentError: if a message has another length, wire version, codec or
        number of blocks, there are not `shards` times `layers` messages, or `replicas` or
        `layers` is out of range.
    """
    return _library.load().tf_gc_one_bit_decode_shards(
        messages=as_list(messages),
        like=non_empty(like, "like"),
        shards=shards,
        replicas=replicas,
        layers=layers,
        **_attributes(threshold),
    )


def one_bit_message_bits(replicas: int, threshold: float | str = "auto") -> float:
    """Returns how many bits an element takes in a message with a sum over `replicas` replicas.

    Args:
      replicas: the number of replicas; 1 for the messages of `one_bit_encode`.
      threshold: `"auto"` or a number.

    Raises:
      ValueError: if there are no replicas or, with a fixed threshold, more than 32767.
    """
    return message_bits(_AUTO if threshold == "auto" else _FIXED, replicas, threshold)


def _attributes(threshold: float | str) -> dict[str, bool | float]:
    """Returns the ops' attributes for a threshold. ValueError for strings except "auto"."""
    if threshold == "auto":
        return {"fixed": False, "threshold": 0.0}
    if isinstance(threshold, str):
        raise ValueError(f'threshold must be "auto" or a number, got {threshold!r}')
    return {"fixed": True, "threshold": threshold}
