"""Wrappers of the ops that encode a bucket and decode its messages.

With automatic scales (threshold `"auto"`), each block of 128 consecutive elements of a flattened
tensor has a scale `s` of its own, rounded to bfloat16. The codecs are:

- `"two_bit"` sends `+s`, `-s` or 0 for each element. With a fixed threshold, `s` is the threshold,
  and an element is sent where its magnitude reaches `s` (MXNet's gradient compression). With
  `"auto"`, `s` is two thirds of the block's largest magnitude, and an element is sent where its own
  reaches half of `s`: the uniform quantizer with three levels (scaled by the largest element, as in
  TernGrad, Wen et al. 2017, but rounding to the nearest level).
- `"three_bit"` and `"four_bit"` send 0 or plus or minus a level, whichever is nearest: 5/32, 1/2 or
  1 of `s`; 1/32, 1/8, 1/4, 3/8, 1/2, 3/4 or 1 of `s` (nonuniform quantization as in NUQSGD,
  Ramezani-Kebrya et al. 2021, which rounds at random). `s` is the block's largest magnitude with
  three bits and 8/9 of it with four. They have automatic scales only.
- `"eight_bit"` sends a multiple of `s` from -127 to 127, whichever is nearest, the even one of two.
  `s` is the block's largest magnitude divided by 127, so that no element is off by more than 1/253
  of the largest. Where `s` would be below 2^-126, zeros are sent. It has automatic scales only.
- `"one_bit"` sends `+s` or `-s` (error feedback as in 1-bit SGD, Seide et al. 2014). With `"auto"`,
  `s` is the block's mean magnitude, and the signs are sent (EF-SignSGD, Karimireddy et al. 2019).
  With a number, `+1` is sent for an element that is greater than that number, and `-1` for others
  (MXNet's 1-bit gradient compression).

Gradient plus residual is encoded, and the residual becomes what was not sent; without residuals the
gradient is encoded, and what was not sent is dropped. An element that is not finite, or not below
2^120 in magnitude, is marked as not finite and keeps its residual; one bit has no code for that, so
with `"one_bit"` its whole block is marked and keeps its residuals.
"""

import tensorflow as tf

from tf_gc.ops import _loader
from tf_gc.ops._arguments import Messages, Tensors, Variables, as_list, attributes, bucket


def encode(
    gradients: Tensors,
    residuals: Variables,
    codec: str = "two_bit",
    threshold: float | str = "auto",
    shards: int = 1,
    skip: int | None = None,
) -> tf.Tensor:
    """Encodes a bucket of gradients and updates its residuals; returns int64 [shards, words].

    The bucket is cut into shards of whole blocks, each with a message of its own. All have the same
    length: the bucket's blocks divided by `shards`, rounded up. The shard with the number `skip`,
    with `"auto"` only, is not encoded. Its message has zeros, which `"two_bit"` decodes to zeros,
    and its residuals stay as they are.
    """
    return _loader.load().tf_gc_encode(
        **bucket(gradients, residuals, may_be_none=True),
        **attributes(codec, threshold),
        shards=shards,
        skip=-1 if skip is None else skip,
    )


def decode(
    messages: Messages, like: Tensors, codec: str = "two_bit", threshold: float | str = "auto"
) -> list[tf.Tensor]:
    """Decodes the messages of all replicas for one bucket and adds them in their order.

    The arguments are as in `tf_gc.ops`. In the sums, which are as `like`, an element that any
    replica marked as not finite is NaN.
    """
    return _loader.load().tf_gc_decode(
        messages=as_list(messages), like=as_list(like, "like"), **attributes(codec, threshold)
    )


def two_bit_encode(
    gradients: Tensors,
    residuals: Variables,
    threshold: float | str = "auto",
    shards: int = 1,
    skip: int | None = None,
) -> tf.Tensor:
    """The same as `encode` with the codec `"two_bit"`."""
    return encode(gradients, residuals, "two_bit", threshold, shards, skip)


def two_bit_decode(
    messages: Messages, like: Tensors, threshold: float | str = "auto"
) -> list[tf.Tensor]:
    """The same as `decode` with the codec `"two_bit"`."""
    return decode(messages, like, "two_bit", threshold)
