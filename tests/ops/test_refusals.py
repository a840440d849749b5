"""What the codecs' ops refuse, by name and value, and that refused calls change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.formats import (
    AUTO,
    FIXED,
    HEADER_BYTES,
    Format,
    InvalidArgument,
    Replica,
    each_format,
    make_replica,
)
from tf_gc.ops import count, decode, decode_shards, encode, reencode, two_bit_decode, two_bit_encode

AUTOMATIC, HALF = Format("two_bit", "auto"), Format("two_bit", 0.5)


def bucket() -> Replica:
    return make_replica([(300,)])


def zeros(shape: tuple[int, ...] = (4,)) -> tf.Variable:
    return tf.Variable(tf.zeros(shape))


def small(form: Format = AUTOMATIC, shards: int = 2) -> tuple[tf.Tensor, Replica]:
    """Messages of a bucket of 300 elements, and the bucket."""
    replica = bucket()
    return encode(*replica, form.codec, form.threshold, shards), replica


# ---- Gradients and residuals -------------------------------------------------------


@pytest.mark.parametrize("shape", [(5,), (2, 2), ()])
def test_a_residual_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgument, match=r"residual 0 .*shape \[4\]"):
        two_bit_encode([tf.zeros(4)], [zeros(shape)])


def test_a_residual_of_another_dtype_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"float32.*double"):
        two_bit_encode([tf.zeros(4)], [tf.Variable(tf.zeros(4, tf.float64))])


def test_the_same_residual_twice_is_refused() -> None:
    residual = zeros()
    with pytest.raises(InvalidArgument, match="twice"):
        two_bit_encode([tf.zeros(4)] * 2, [residual] * 2)


@pytest.mark.parametrize("dtype", [tf.float64, tf.int32])
def test_another_dtype_is_refused(dtype: tf.DType) -> None:
    with pytest.raises((InvalidArgument, TypeError)):
        two_bit_encode([tf.zeros(4, dtype)], [zeros()])


def test_empty_lists_and_residuals_that_do_not_fit_are_refused() -> None:
    rows, (gradients, residuals) = small()
    for call in (lambda *lists: encode(*lists), lambda *lists: reencode(rows, *lists, 0, 2)):
        with pytest.raises(ValueError, match="`gradients` is empty"):
            call([], [])
        with pytest.raises(ValueError, match=r"1 gradients.*2"):
            call(gradients, residuals * 2)
        with pytest.raises(ValueError, match=r"2 gradients.*1"):
            call(gradients * 2, residuals)
        with pytest.raises(InvalidArgument, match=r"residual 0 .*shape \[300\]"):
            call(gradients, [zeros((299,))])
    with pytest.raises(ValueError, match="`messages` is empty"):
        decode([], gradients)
    with pytest.raises(ValueError, match="`like` is empty"):
        decode(rows, [])
    with pytest.raises(ValueError, match="`messages` is empty"):
        reencode([], gradients, residuals, 0, 2)
    with pytest.raises(ValueError, match="`messages` is empty"):
        count([], 2, "two_bit", 0.5)
    with pytest.raises(ValueError, match="`like` is empty"):
        decode_shards(rows, [], shards=2, replicas=2)


# ---- Thresholds --------------------------------------------------------------------

OUT_OF_RANGE = [
    *(("two_bit", t) for t in (0, -0.0, -0.5, float("nan"), float("inf"), 1e-40, 2e36)),
    *(("one_bit", t) for t in (float("nan"), float("inf"), 2.0**120, -(2.0**120))),
]


@pytest.mark.parametrize(("codec", "threshold"), OUT_OF_RANGE)
def test_a_threshold_out_of_range_is_refused(codec: str, threshold: float) -> None:
    fixed, replica = small(Format(codec, 0.5))
    for call in (
        lambda: encode(*replica, codec, threshold),
        lambda: decode(fixed, replica[0], codec, threshold),
        lambda: count(fixed, 2, codec, threshold),
        lambda: decode_shards(fixed, replica[0], codec, threshold, shards=2, replicas=2),
    ):
        with pytest.raises(InvalidArgument, match=rf"threshold must be in .* {codec}, got "):
            call()


@pytest.mark.parametrize("codec", ["two_bit", "one_bit"])
def test_a_threshold_that_is_a_string_is_refused(codec: str) -> None:
    fixed, replica = small(Format(codec, 0.5))
    with pytest.raises(ValueError, match=r"threshold must be .*'0\.5'"):
        encode(*replica, codec, "0.5")
    for threshold in ("auto", "0.5"):
        with pytest.raises(ValueError, match="threshold must be a number"):
            count(fixed, 2, codec, threshold)


# ---- Shards, rows and codecs of sums -----------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"shards": 0}, "shards"),
        ({"shards": -2}, "shards"),
        ({"shards": 2, "skip": 2}, r"skip .* 2 shards, got 2"),
        ({"shards": 2, "skip": -3}, r"skip .*got -3"),
        ({"skip": 1}, r"skip .* 1 shards, got 1"),
    ],
)
@each_format
def test_encode_refuses_wrong_shards(form: Format, arguments: dict[str, Any], named: str) -> None:
    gradients, residuals = bucket()
    before = residuals[0].numpy()
    with pytest.raises(InvalidArgument, match=named):
        encode(gradients, residuals, form.codec, form.threshold, **arguments)
    np.testing.assert_array_equal(residuals[0], before)


@pytest.mark.parametrize("codec", ["two_bit", "one_bit"])
def test_no_shard_of_a_fixed_threshold_is_skipped(codec: str) -> None:
    with pytest.raises(InvalidArgument, match=r"skip .*fixed threshold, got 0"):
        encode(*bucket(), codec, 0.5, shards=2, skip=0)


def test_more_words_than_a_shape_can_count_are_refused() -> None:
    with pytest.raises(tf.errors.OpError):
        two_bit_encode(*bucket(), shards=2**61)


@pytest.mark.parametrize(("shard", "shards"), [(2, 2), (5, 2), (-1, 2), (0, 0)])
def test_reencode_refuses_a_shard_that_there_is_not(shard: int, shards: int) -> None:
    rows, replica = small()
    with pytest.raises(InvalidArgument, match="shard"):
        reencode(rows, *replica, shard, shards)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_as_many_rows_as_shards_or_replicas_are_needed(rows: int) -> None:
    auto, replica = small()
    fixed, _ = small(HALF)
    counts = count(fixed, 2, "two_bit", 0.5)

    def some(messages: tf.Tensor) -> tf.Tensor:
        return tf.repeat(messages[:1], rows, axis=0)

    with pytest.raises(InvalidArgument, match=rf"2 rows.*`shards`, got {rows}"):
        reencode(some(auto), *replica, 0, 2)
    with pytest.raises(InvalidArgument, match=rf"2 rows.*`replicas`, got {rows}"):
        count(some(fixed), 2, "two_bit", 0.5)
    with pytest.raises(InvalidArgument, match=rf"2 rows.*`shards`, got {rows}"):
        decode_shards(some(auto), replica[0], shards=2, replicas=2)
    with pytest.raises(InvalidArgument, match=rf"2 rows.*`shards`, got {rows}"):
        decode_shards(some(counts), replica[0], "two_bit", 0.5, shards=2, replicas=2)


def test_more_rows_than_replicas_are_refused() -> None:
    fixed = encode(*bucket(), "one_bit", 0.0)
    with pytest.raises(InvalidArgument, match=r"1 rows.*`replicas`, got 2"):
        count([fixed, fixed], 1, "one_bit", 0.0)


def test_a_message_without_rows_is_refused() -> None:
    message = two_bit_encode([tf.zeros(4)], [zeros()])
    with pytest.raises(InvalidArgument, match="holds no row"):
        two_bit_decode(message[:0], [tf.zeros(4)])


@pytest.mark.parametrize("sum_codec", ["one_bit", "four_bit", "no_bit"])
def test_sums_by_another_codec_are_refused(sum_codec: str) -> None:
    rows, replica = small()
    for accepted in ("two_bit", "three_bit"):
        reencode(rows, *replica, 0, 2, sum_codec=accepted)
    with pytest.raises((InvalidArgument, ValueError), match=rf"sum_codec.*{sum_codec}"):
        reencode(rows, *replica, 0, 2, sum_codec=sum_codec)


@pytest.mark.parametrize("replicas", [0, -1, 32768])
def test_a_number_of_replicas_out_of_range_is_refused(replicas: int) -> None:
    fixed, (like, _) = small(HALF)
    with pytest.raises(InvalidArgument, match=rf"replicas.*{replicas}"):
        count(fixed, replicas, "two_bit", 0.5)
    with pytest.raises(InvalidArgument, match=rf"replicas.*{replicas}"):
        decode_shards(fixed, like, "two_bit", 0.5, shards=2, replicas=replicas)


# ---- Messages ----------------------------------------------------------------------

Call = Callable[[tf.Tensor], Any]


def takes_messages(form: Format, op: str) -> tuple[tf.Tensor, Call]:
    """Two messages that an op takes, and the call."""
    codec, threshold = form.codec, form.threshold
    rows, replica = small(form)
    like = replica[0]
    if op == "decode":
        whole = tf.repeat(encode(*replica, codec, threshold), 2, axis=0)
        return whole, lambda rows: decode(rows, like, codec, threshold)
    if op == "reencode":
        return rows, lambda rows: reencode(rows, *replica, 0, 2, codec=codec)
    if op == "count":
        return rows, lambda rows: count(rows, 2, codec, threshold)
    if not form.automatic:
        rows = tf.repeat(count(rows, 2, codec, threshold), 2, axis=0)
    return rows, lambda rows: decode_shards(rows, like, codec, threshold, shards=2, replicas=2)


each_op = pytest.mark.parametrize(
    ("form", "op"),
    [(form, op) for form in FIXED for op in ("decode", "count", "decode_shards")]
    + [(form, op) for form in AUTO for op in ("decode", "reencode", "decode_shards")],
    ids=str,
)


@each_op
def test_a_header_of_another_kind_is_refused(form: Format, op: str) -> None:
    rows, call = takes_messages(form, op)
    call(rows)
    parts = {0: "magic", 2: "wire version", 3: "codec", 7: "threshold", 8: "blocks"}
    for byte, named in parts.items():
        data = rows.numpy().view(np.uint8)
        data[1, byte] ^= 0x11
        with pytest.raises(InvalidArgument, match=named):
            call(tf.constant(data.view(np.int64)))


@each_op
def test_messages_of_the_wrong_shape_are_refused(form: Format, op: str) -> None:
    rows, call = takes_messages(form, op)
    words = rows.shape[1]
    shapes = [
        *((2, width) for width in (0, 1, 4, 9, words - 2, words + 2)),
        *((2 * words,), (1, 2, words), ()),
    ]
    for shape in shapes:
        with pytest.raises(InvalidArgument, match=r"messages must have the shape|magic"):
            call(tf.zeros(shape, tf.int64))


@each_op
def test_any_body_is_taken(form: Format, op: str) -> None:
    rows, call = takes_messages(form, op)
    random = np.random.default_rng(1)
    data = rows.numpy().view(np.uint8)
    for _ in range(20):
        data[:, HEADER_BYTES:] = random.integers(256, size=data[:, HEADER_BYTES:].shape)
        call(tf.constant(data.view(np.int64)))


def test_a_refused_message_leaves_the_residuals() -> None:
    rows, (gradients, residuals) = small()
    before = residuals[0].numpy()
    with pytest.raises(InvalidArgument):
        reencode(tf.zeros_like(rows), gradients, residuals, 0, 2)
    np.testing.assert_array_equal(residuals[0], before)


@pytest.mark.parametrize("codec", ["two_bit", "one_bit"])
def test_codec_and_threshold_of_sender_and_receiver_must_agree(codec: str) -> None:
    gradients, residuals = bucket()
    fixed = encode(gradients, residuals, codec, 0.5)
    auto = encode(gradients, residuals, codec)
    with pytest.raises(InvalidArgument, match=r"threshold 0\.5.*expects 0\.25"):
        decode(fixed, gradients, codec, 0.25)
    with pytest.raises(InvalidArgument, match=r"threshold 0\.5.*expects 0\.25"):
        count(fixed, 1, codec, 0.25)
    # With one bit, messages of both kinds have the same length.
    other = r"codec 6, .*expects 7" if codec == "one_bit" else "messages must have the shape"
    with pytest.raises(InvalidArgument, match=other):
        decode(fixed, gradients, codec)
    other = r"codec 7, .*expects 6" if codec == "one_bit" else "messages must have the shape"
    with pytest.raises(InvalidArgument, match=other):
        count(auto, 1, codec, 0.5)


def test_a_threshold_of_zero_has_no_sign() -> None:
    gradients, residuals = bucket()
    decode(encode(gradients, residuals, "one_bit", 0.0), gradients, "one_bit", -0.0)
    with pytest.raises(InvalidArgument, match=r"threshold 0.*expects 0\.25"):
        decode(encode(gradients, residuals, "one_bit", 0.0), gradients, "one_bit", 0.25)


def test_messages_of_another_codec_are_refused() -> None:
    gradients, residuals = bucket()
    with pytest.raises(InvalidArgument, match="shape"):
        two_bit_decode(encode(gradients, residuals, "one_bit", 0.0), gradients)
    with pytest.raises(InvalidArgument, match="shape"):
        decode(two_bit_encode(gradients, residuals), gradients, codec="one_bit")


@pytest.mark.parametrize("codec", ["two_bit", "one_bit"])
def test_messages_of_counts_must_be_those_that_are_expected(codec: str) -> None:
    fixed, (like, _) = small(Format(codec, 0.5))
    counts = count(fixed, 2, codec, 0.5)
    if codec == "two_bit":  # the unit of one bit's counts is 1, whatever the threshold
        with pytest.raises(InvalidArgument, match=r"threshold 0\.5.*expects 0\.25"):
            decode_shards([counts] * 2, like, codec, 0.25, shards=2, replicas=2)
    # Counts of another width, and codes in their place.
    with pytest.raises(InvalidArgument, match="messages must have the shape"):
        decode_shards([counts] * 2, like, codec, 0.5, shards=2, replicas=8)
    with pytest.raises(InvalidArgument, match="messages must have the shape"):
        decode_shards(fixed, like, codec, 0.5, shards=2, replicas=2)
