"""The two-bit codec's ops, by names of their own."""

from collections.abc import Sequence

import tensorflow as tf

from tf_gc.ops.codec import decode, encode


def two_bit_encode(
    gradients: Sequence[tf.Tensor],
    residuals: Sequence[tf.Variable],
    threshold: float | str = "auto",
    shards: int = 1,
    skip: int | None = None,
) -> tf.Tensor:
    """Encodes a bucket of gradients in two bits an element and updates its residuals.

    For each element, with `p = gradient + residual`, one of `+s`, `-s` and `0` is sent and
    the residual becomes `p` minus what was sent (error feedback, as in MXNet's gradient
    compression). With a fixed threshold, `s` is the threshold, and an element is sent where its
    `|p|` reaches `s`. With `"auto"`, each block of 128 consecutive elements of a flattened tensor
    has its own `s`: two thirds of the block's largest `|p|`, rounded to bfloat16. An element is
    then sent where its `|p|` reaches half of `s`. That is the uniform quantizer with three levels
    (scaled by the largest element, as in TernGrad, Wen et al. 2017, but rounding to the nearest
    level). An element that is not finite, or not below 2^120 in magnitude, is marked as not finite
    and keeps its residual.

    Args:
      gradients: tensors of one dtype (float32, float16 or bfloat16) and any shapes; at least
        one.
      residuals: one initialized float32 `tf.Variable` (or its handle) for each gradient, of
        its shape, on its device.
      threshold: `"auto"`, or a number in [2^-126, 2^120).
      shards: how many shards of whole blocks the bucket is cut into, each with a message of its
        own. All shards have the same length: the bucket's blocks divided by `shards`, rounded up.
      skip: the number of a shard that is not encoded, with `"auto"` only. Its message decodes to
        zeros, and its residuals stay as they are.

    Returns:
      The messages: int64, shape [shards, words].

    Raises:
      ValueError: if the lists are empty or differ in length, or the threshold is a string other
        than `"auto"`.
      tf.errors.InvalidArgumentError: if a residual does not fit its gradient or occurs twice,
        or the threshold or a number is out of range.
    """
    return encode(gradients, residuals, "two_bit", threshold, shards, skip)


def two_bit_decode(
    messages: tf.Tensor | Sequence[tf.Tensor],
    like: Sequence[tf.Tensor],
    threshold: float | str = "auto",
) -> list[tf.Tensor]:
    """Decodes the messages of all replicas for one bucket and adds them in their order.

    Args:
      messages: int64, shape [rows, words] (or a list of such tensors): the messages that
        `two_bit_encode` made of the same bucket, a row for each replica.
      like: tensors with the dtype and the shapes of the bucket's gradients. Their values are
        not read, and where nothing else needs them their buffers become the results'.
      threshold: the threshold that the messages were encoded with.

    Returns:
      The sums, with the dtype and the shapes of `like`. An element is NaN if any replica
      marked it as not finite.

    Raises:
      ValueError: if a list is empty, or the threshold is a string other than `"auto"`.
      tf.errors.InvalidArgumentError: if the threshold is out of range, or a message has another
        length, wire version, codec, threshold or number of blocks.
    """
    return decode(messages, like, "two_bit", threshold)
