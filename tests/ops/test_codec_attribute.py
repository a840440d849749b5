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
GRADIENTS = [tf.linspace(-1.0, 1.0, 300)]
each_format = pytest.mark.parametrize(
    ("codec", "threshold"),
    [(codec, 0.5) for codec in CODECS if codec not in AUTOMATIC_ONLY]
    + [(codec, "auto") for codec in CODECS],
)

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


@each_format
def test_a_message_of_another_codec_is_refused(codec: str, threshold: float | str) -> None:
    message = ops.encode(GRADIENTS, zeros(), codec, threshold).numpy().view(np.uint8)
    expected = message[0, 3]
    assert expected == library.codec_number(codec, threshold == "auto")
    second = CALLS["decode_shards" if threshold == "auto" else "count"]
    for number in (0, 3, 10, 99, 255):
        message[0, 3] = number
        rows = message.view(np.int64).copy()
        says = rf"a message has codec {number}, and this replica expects {expected}"
        with pytest.raises(InvalidArgument, match=says):
            ops.decode(rows, GRADIENTS, codec, threshold)
        with pytest.raises(InvalidArgument, match=says):
            second(codec, rows, [])
    for other in set(CODECS) - {codec} - (set() if threshold == "auto" else {*AUTOMATIC_ONLY}):
        with pytest.raises(InvalidArgument, match="messages must have the shape"):
            ops.decode(message.view(np.int64), GRADIENTS, other, threshold)


@pytest.mark.parametrize("codec", CODECS)
def test_automatic_scales_have_no_threshold(codec: str) -> None:
    residuals = [residual.handle for residual in zeros()]
    for threshold in (0.5, -0.5, 1e-40, float("nan")):
        attributes = {"codec": codec, "automatic": True, "threshold": threshold}
        with pytest.raises(InvalidArgument, match=r"threshold must be 0 .*automatic, got"):
            _loader.load().tf_gc_encode(gradients=GRADIENTS, residuals=residuals, **attributes)
