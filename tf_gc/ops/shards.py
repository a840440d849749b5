"""Wrappers of the ops that sum a bucket by shards, each shard on the replica that owns it."""

import tensorflow as tf

from tf_gc.ops import _loader
from tf_gc.ops._arguments import Messages, Tensors, Variables, as_list, attributes, bucket


def reencode(
    messages: Messages,
    gradients: Tensors,
    residuals: Variables,
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

    `messages` are those with this shard that `encode` made, one for each of `shards` replicas; row
    `shard`, the owner's, is not read. `gradients` are the owner's, the whole bucket, and
    `residuals` theirs after `encode` with `skip=shard`; those outside the shard stay as they are.
    `sum_codec` encodes the sum: the same codec (`None`), or a finer one, which is `"three_bit"` for
    one bit and two bits, `"four_bit"` for three. Returns int64 [1, words].
    """
    return _loader.load().tf_gc_reencode(
        messages=as_list(messages),
        **bucket(gradients, residuals, may_be_none=True),
        codec=codec,
        sum_codec=codec if sum_codec is None else sum_codec,
        shard=shard,
        shards=shards,
    )


def count(messages: Messages, replicas: int, codec: str, threshold: float | str) -> tf.Tensor:
    """Sums the messages with one shard, a row for each replica, to int64 [1, words] without loss.

    The threshold is a number. The sum of an element is a whole number from -replicas to replicas,
    in units of what the codec sends: the threshold with `"two_bit"`, 1 with `"one_bit"`. It is sent
    in 4 bits for up to 7 replicas, 8 for up to 127, 16 for up to 32767.
    """
    if isinstance(threshold, str):
        raise ValueError(f"threshold must be a number here, got {threshold!r}")
    return _loader.load().tf_gc_count(
        messages=as_list(messages), codec=codec, threshold=threshold, replicas=replicas
    )


def decode_shards(
    messages: Messages,
    like: Tensors,
    codec: str = "two_bit",
    threshold: float | str = "auto",
    *,
    shards: int,
    replicas: int,
) -> list[tf.Tensor]:
    """Decodes the sums, over `replicas` replicas, of a bucket's shards.

    `messages` has a row for each shard, in order, made by `reencode` for `"auto"`, by `count` for a
    number. `codec` is the one of the sums; with a fixed threshold, of the gradients. The results
    are as `like`. With a fixed threshold they equal, bit for bit, what `decode` returns for the
    messages of all replicas. Elements marked as not finite are NaN.
    """
    return _loader.load().tf_gc_decode_shards(
        messages=as_list(messages),
        like=as_list(like, "like"),
        **attributes(codec, threshold),
        shards=shards,
        replicas=replicas,
    )
