"""One family of ops for all codecs: the attribute `codec`, and what else says how to encode."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tf_gc import ops
from tf_gc.ops import _loader, library

InvalidArgument = tf.errors.InvalidArgumentError
CODECS = library.codec_names()
AUTOMATIC_ONLY = ["three_bit", "four_bit"]
FORMATS = [
    (codec, threshold)
    for codec in CODECS
    for threshold in (0.5, "auto")
    if threshold == "auto" or codec not in AUTOMATIC_ONLY
]
GRADIENTS = [tf.linspace(-1.0, 1.0, 300)]

CALLS: dict[str, Callable[[str, tf.Tensor, list[tf.Variable]], object]] = {
    "encode": lambda codec, _, residuals: ops.encode(GRADIENTS, residuals, codec),
    "decode": lambda codec, message, _: ops.decode(message, GRADIENTS, codec),
    "reencode": lambda codec, message, residuals: ops.reencode(
        message, GRADIENTS, residuals, 0, 1, codec, "two_bit"
    ),
    "reencode, sum": lambda codec, message, residuals: ops.reencode(
        message, GRADIENTS, residuals, 0, 1, sum_codec=codec
    ),
    "count": lambda codec, message, _: ops.count(message, 1, codec, 0.5),
    "decode_shards": lambda codec, message, _: ops.decode_shards(
        message, GRADIENTS, codec, shards=1, replicas=1
    ),
}


def zeros() -> list[tf.Variable]:
    return [tf.Variable(tf.zeros(300))]


@pytest.mark.parametrize("op", CALLS)
def test_an_unknown_codec_is_refused_by_name(op: str) -> None:
    residuals = zeros()
    message = ops.encode(GRADIENTS, zeros())
    for codec in ("", "five_bit", "TWO_BIT", "two_bit "):
        said = rf"codec' of \"{codec}\" .*\"two_bit\", \"one_bit\""
        with pytest.raises(InvalidArgument, match=said):
            CALLS[op](codec, message, residuals)
    np.testing.assert_array_equal(residuals[0], tf.zeros(300))


def test_message_bits_refuses_an_unknown_codec() -> None:
    with pytest.raises(ValueError, match=r"codec must be one of .*'one_bit'.*got 'five_bit'"):
        ops.message_bits(2, "five_bit")


def test_a_threshold_is_auto_or_a_number() -> None:
    message = ops.encode(GRADIENTS, zeros())
    for call in (
        lambda: ops.encode(GRADIENTS, zeros(), "two_bit", "automatic"),
        lambda: ops.pack(message, "two_bit", "automatic"),
        lambda: ops.count_sent(message, "two_bit", "automatic"),
        lambda: ops.is_compactible("two_bit", "automatic"),
        lambda: ops.message_bits(1, "two_bit", "automatic"),
    ):
        with pytest.raises(ValueError, match=r"threshold must be .* got 'automatic'"):
            call()


@pytest.mark.parametrize("codec", AUTOMATIC_ONLY)
def test_a_codec_with_automatic_scales_only_takes_no_threshold(codec: str) -> None:
    message = ops.encode(GRADIENTS, zeros(), codec)
    for call in (
        lambda: ops.encode(GRADIENTS, zeros(), codec, 0.5),
        lambda: ops.decode(message, GRADIENTS, codec, 0.5),
        lambda: ops.count(message, 1, codec, 0.5),
    ):
        with pytest.raises(InvalidArgument, match=rf'codec "{codec}" has automatic scales only'):
            call()
    with pytest.raises(ValueError, match=rf"{codec}.*automatic scales only"):
        ops.message_bits(2, codec, 0.5)


@pytest.mark.parametrize(("codec", "threshold"), FORMATS)
def test_the_header_has_the_number_of_the_codec(codec: str, threshold: float | str) -> None:
    message = ops.encode(GRADIENTS, zeros(), codec, threshold).numpy().view(np.uint8)
    assert message[0, 3] == library.codec_number(codec, threshold == "auto")
    assert message[0, 2] == library.wire_version()
    blocks = int(message.view(np.int64)[0, 1])
    assert blocks == -(-300 // library.block_size())
    # What is not header or padding.
    bits = ops.message_bits(1, codec, threshold) * blocks * library.block_size()
    assert 0 <= message.size - 16 - bits / 8 < 16


@pytest.mark.parametrize(("codec", "threshold"), FORMATS)
def test_a_message_of_an_unknown_codec_is_refused(codec: str, threshold: float | str) -> None:
    message = ops.encode(GRADIENTS, zeros(), codec, threshold).numpy().view(np.uint8)
    expected = message[0, 3]
    second = CALLS["decode_shards" if threshold == "auto" else "count"]
    for number in (0, 3, 10, 99, 255):
        message[0, 3] = number
        rows = message.view(np.int64).copy()
        says = rf"a message has codec {number}, and this replica expects {expected}"
        with pytest.raises(InvalidArgument, match=says):
            ops.decode(rows, GRADIENTS, codec, threshold)
        with pytest.raises(InvalidArgument, match=says):
            second(codec, rows, [])


@pytest.mark.parametrize("codec", CODECS)
def test_automatic_scales_have_no_threshold(codec: str) -> None:
    residuals = [residual.handle for residual in zeros()]
    for threshold in (0.5, -0.5, 1e-40, float("nan")):
        attributes = {"codec": codec, "automatic": True, "threshold": threshold}
        with pytest.raises(InvalidArgument, match=r"threshold must be 0 .*automatic, got"):
            _loader.load().tf_gc_encode(gradients=GRADIENTS, residuals=residuals, **attributes)


@pytest.mark.parametrize(("codec", "threshold"), FORMATS)
def test_messages_of_another_codec_are_refused(codec: str, threshold: float | str) -> None:
    message = ops.encode(GRADIENTS, zeros(), codec, threshold)
    others = [other for other, of_other in FORMATS if of_other == threshold and other != codec]
    assert others
    for other in others:
        with pytest.raises(InvalidArgument, match="messages must have the shape"):
            ops.decode(message, GRADIENTS, other, threshold)
