"""Wrappers of the ops that encode a bucket and decode its messages.

A codec is one of `codec_names()`:

- `"two_bit"` sends `+s`, `-s` or 0 for each element. With a fixed threshold, `s` is the threshold.
  With `"auto"`, each block of 128 elements has its own `s`. `two_bit_encode` says what is sent.
- `"three_bit"` and `"four_bit"` send 0 or plus or minus a level, whichever is nearest: 5/32, 1/2 or
  1 of `s`; 1/32, 1/8, 1/4, 3/8, 1/2, 3/4 or 1 of `s` (nonuniform quantization as in NUQSGD,
  Ramezani-Kebrya et al. 2021, which rounds at random). Each block of 128 elements has its own `s`,
  the block's largest magnitude with three bits and 8/9 of it with four, rounded to bfloat16. They
  have automatic scales only.
- `"one_bit"` sends `+s` or `-s` (error feedback as in 1-bit SGD, Seide et al. 2014). With `"auto"`
  each block of 128 consecutive elements of a flattened tensor has its own `s`, the block's mean
  magnitude, rounded to bfloat16, and sends the signs (EF-SignSGD, Karimireddy et al. 2019). With a
  number, `+1` is sent for an element that is greater than that number, and `-1` for others (MXNet's
  1-bit gradient compression).

Gradient plus residual is encoded, and the residual becomes what was not sent. An element
that is not finite, or not below 2^120 in magnitude, is marked as not finite and keeps its residual;
one bit has no code for that, so with `"one_bit"` its whole block is marked and keeps its residuals.
"""

from collections.abc import Sequence

import tensorflow as tf

from tf_gc.ops import _loader
from tf_gc.ops._arguments import NO_SHARD, as_list, attributes, handles, non_empty


def encode(
    gradients: Sequence[tf.Tensor],
    residuals: Sequence[tf.Variable],
    codec: str = "two_bit",
    threshold: float | str = "auto",
    shards: int = 1,
    skip: int | None = None,
) -> tf.Tensor:
    """Encodes a bucket of gradients and updates its residuals.

    Args:
      gradients: tensors of one dtype (float32, float16 or bfloat16) and any shapes; at least
        one.
      residuals: one initialized float32 `tf.Variable` (or its handle) for each gradient, of
        its shape, on its device.
      codec: the codec's name.
      threshold: `"auto"`, or a number: in [2^-126, 2^120) for `"two_bit"`, in (-2^120, 2^120) for
        `"one_bit"`.
      shards: how many shards of whole blocks the bucket is cut into, each with a message of its
        own. All shards have the same length: the bucket's blocks divided by `shards`, rounded up.
      skip: the number of a shard that is not encoded, with `"auto"` only. Its message has zeros,
        which `"two_bit"` decodes to zeros, and its residuals stay as they are.

    Returns:
      The messages: int64, shape [shards, words].

    Raises:
      ValueError: if the lists are empty or differ in length, or the threshold is a string other
        than `"auto"`.
      tf.errors.InvalidArgumentError: if no codec has that name, a residual does not fit its
        gradient or occurs twice, or the threshold or a number is out of range.
    """
    return _loader.load().tf_gc_encode(
        gradients=non_empty(gradients, "gradients"),
        residuals=handles(residuals, gradients),
        **attributes(codec, threshold),
        shards=shards,
        skip=NO_SHARD if skip is None else skip,
    )


def decode(
    messages: tf.Tensor | Sequence[tf.Tensor],
    like: Sequence[tf.Tensor],
    codec: str = "two_bit",
    threshold: float | str = "auto",
) -> list[tf.Tensor]:
    """Decodes the messages of all replicas for one bucket and adds them in their order.

    Args:
      messages: int64, shape [rows, words] (or a list of such tensors): the messages that `encode`
        made of the same bucket, a row for each replica.
      like: tensors with the dtype and the shapes of the bucket's gradients. Their values are
        not read, and where nothing else needs them their buffers become the results'.
      codec: the codec that the messages were encoded with.
      threshold: the threshold that the messages were encoded with.

    Returns:
      The sums, with the dtype and the shapes of `like`. An element that
      any replica marked as not finite is NaN.

    Raises:
      ValueError: if a list is empty, or the threshold is a string other than `"auto"`.
      tf.errors.InvalidArgumentError: if no codec has that name, the threshold is out of range, or
        a message has another length, wire version, codec, threshold or number of blocks.
    """
    return _loader.load().tf_gc_decode(
        messages=as_list(messages), like=non_empty(like, "like"), **attributes(codec, threshold)
    )
