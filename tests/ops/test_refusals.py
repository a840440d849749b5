"""The codecs' ops refuse wrong calls, by name and value, which then change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.formats import AUTO, FIXED, Format, InvalidArgument, copies_of, make_replica
from tf_gc.ops import count, decode, decode_shards, encode, reencode

# A bucket of 300 elements, and messages of two shards of it.
GRADIENTS, RESIDUALS = make_replica([(300,)])
ROWS = encode(GRADIENTS, copies_of(RESIDUALS), shards=2)
FIXED_ROWS = encode(GRADIENTS, copies_of(RESIDUALS), "two_bit", 0.5, shards=2)
COUNTS = count(FIXED_ROWS, 2, "two_bit", 0.5)
TWO = {"shards": 2, "replicas": 2}


def of_sums(messages: Any, codec: str = "two_bit", threshold: Any = "auto", **options: int) -> Any:
    return decode_shards(messages, GRADIENTS, codec, threshold, **{**TWO, **options})


def again(messages: Any, shard: int = 0, shards: int = 2, **codecs: str) -> Any:
    return reencode(messages, GRADIENTS, RESIDUALS, shard, shards, **codecs)


def sharded(codec: str = "two_bit", threshold: Any = "auto", **options: int) -> Any:
    return encode(GRADIENTS, RESIDUALS, codec, threshold, **options)


def of_residual(residual: tf.Tensor) -> Any:
    return encode([tf.zeros(4)], [tf.Variable(residual)])


REFUSED: list[tuple[str, Callable[[], Any]]] = [
    *(
        (r"residual 0 .*shape \[4\]", lambda shape=shape: of_residual(tf.zeros(shape)))
        for shape in [(5,), (2, 2), ()]
    ),
    ("float32.*double", lambda: of_residual(tf.zeros(4, tf.float64))),
    ("twice", lambda: encode(GRADIENTS * 2, RESIDUALS * 2)),
    (
        r"residual 0 .*shape \[300\]",
        lambda: reencode(ROWS, GRADIENTS, [tf.Variable(tf.zeros(299))], 0, 2),
    ),
    # Shards.
    *(
        (says, lambda format=format, options=options: sharded(*format, **options))
        for format in [("three_bit", "auto"), ("one_bit", 0.5)]
        for says, options in [
            ("shards", {"shards": 0}),
            ("shards", {"shards": -2}),
            (r"skip .* 2 shards, got 2", {"shards": 2, "skip": 2}),
            (r"skip .*got -3", {"shards": 2, "skip": -3}),
            (r"skip .* 1 shards, got 1", {"skip": 1}),
        ]
    ),
    (r"skip .*fixed threshold, got 0", lambda: sharded("two_bit", 0.5, shards=2, skip=0)),
    (r"skip .*fixed threshold, got 0", lambda: sharded("one_bit", 0.5, shards=2, skip=0)),
    *(
        ("shard", lambda shard=shard, shards=shards: again(ROWS, shard, shards))
        for shard, shards in [(2, 2), (-1, 2), (0, 0)]
    ),
    # Rows.
    *(
        (rf"2 rows.*`{name}`, got {n}", lambda n=n, call=call: call(n))
        for n in (0, 1, 3)
        for name, call in [
            ("shards", lambda n: again(tf.repeat(ROWS[:1], n, axis=0))),
            ("replicas", lambda n: count(tf.repeat(FIXED_ROWS[:1], n, axis=0), 2, "two_bit", 0.5)),
            ("shards", lambda n: of_sums(tf.repeat(ROWS[:1], n, axis=0))),
            ("shards", lambda n: of_sums(tf.repeat(COUNTS, n, axis=0), "two_bit", 0.5)),
        ]
    ),
    ("holds no row", lambda: decode(ROWS[:0], [tf.zeros(256)])),
    # Codecs of sums, and the numbers that counts may have.
    *(
        (f"sum_codec.*{name}", lambda name=name: again(ROWS, sum_codec=name))
        for name in ("one_bit", "four_bit", "no_bit")
    ),
    *((f"replicas.*{n}", lambda n=n: count(FIXED_ROWS, n, "two_bit", 0.5)) for n in (0, -1, 32768)),
    *(
        (f"replicas.*{n}", lambda n=n: of_sums(FIXED_ROWS, "two_bit", 0.5, replicas=n))
        for n in (0, -1, 32768)
    ),
    # Counts of another threshold and width, and codes in their place.
    (r"threshold 0\.5.*expects 0\.25", lambda: of_sums([COUNTS] * 2, "two_bit", 0.25)),
    ("must have the shape", lambda: of_sums([COUNTS] * 2, "two_bit", 0.5, replicas=8)),
    ("must have the shape", lambda: of_sums(FIXED_ROWS, "two_bit", 0.5)),
    # Messages with another threshold, or with automatic scales.
    (r"threshold 0\.5.*expects 0\.25", lambda: count(FIXED_ROWS, 2, "two_bit", 0.25)),
    ("must have the shape", lambda: count(ROWS, 2, "two_bit", 0.5)),
    ("must have the shape", lambda: again(FIXED_ROWS)),
    ("magic", lambda: again(tf.zeros_like(ROWS))),
]


@pytest.mark.parametrize(("says", "call"), REFUSED)
def test_a_wrong_call_is_refused_and_leaves_the_residuals(
    says: str, call: Callable[[], Any]
) -> None:
    before = RESIDUALS[0].numpy()
    with pytest.raises((InvalidArgument, ValueError), match=says):
        call()
    np.testing.assert_array_equal(RESIDUALS[0], before)


@pytest.mark.parametrize("dtype", [tf.float64, tf.int32])
def test_another_dtype_is_refused(dtype: tf.DType) -> None:
    with pytest.raises((InvalidArgument, TypeError)):
        encode([tf.zeros(4, dtype)], [tf.Variable(tf.zeros(4))])


def test_more_words_than_a_shape_can_count_are_refused() -> None:
    with pytest.raises(tf.errors.OpError):
        sharded(shards=2**61)


def test_lists_that_are_empty_or_differ_in_length_are_refused() -> None:
    for call in (lambda *lists: encode(*lists), lambda *lists: reencode(ROWS, *lists, 0, 2)):
        with pytest.raises(ValueError, match="`gradients` is empty"):
            call([], [])
        with pytest.raises(ValueError, match=r"1 gradients.*2"):
            call(GRADIENTS, RESIDUALS * 2)
        with pytest.raises(ValueError, match=r"2 gradients.*1"):
            call(GRADIENTS * 2, RESIDUALS)
    for call in (
        lambda: decode([], GRADIENTS),
        lambda: again([]),
        lambda: count([], 2, "two_bit", 0.5),
    ):
        with pytest.raises(ValueError, match="`messages` is empty"):
            call()
    for call in (lambda: decode(ROWS, []), lambda: decode_shards(ROWS, [], **TWO)):
        with pytest.raises(ValueError, match="`like` is empty"):
            call()


# ---- Thresholds --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "threshold"),
    [
        *(("two_bit", t) for t in (0, -0.5, float("nan"), float("inf"), 1e-40, 2e36)),
        *(("one_bit", t) for t in (float("nan"), float("inf"), 2.0**120, -(2.0**120))),
    ],
)
def test_a_threshold_out_of_range_is_refused(codec: str, threshold: float) -> None:
    for call in (
        lambda: sharded(codec, threshold),
        lambda: decode(FIXED_ROWS, GRADIENTS, codec, threshold),
        lambda: count(FIXED_ROWS, 2, codec, threshold),
        lambda: of_sums(COUNTS, codec, threshold),
    ):
        with pytest.raises(InvalidArgument, match=rf"threshold must be in .* {codec}, got "):
            call()


def test_a_threshold_that_is_a_string_is_refused() -> None:
    with pytest.raises(ValueError, match=r"threshold must be .*'0\.5'"):
        sharded("two_bit", "0.5")
    for threshold in ("auto", "0.5"):
        with pytest.raises(ValueError, match="threshold must be a number"):
            count(FIXED_ROWS, 2, "two_bit", threshold)


def test_a_threshold_of_zero_has_no_sign() -> None:
    message = encode(GRADIENTS, copies_of(RESIDUALS), "one_bit", 0.0)
    decode(message, GRADIENTS, "one_bit", -0.0)
    with pytest.raises(InvalidArgument, match=r"threshold 0.*expects 0\.25"):
        decode(message, GRADIENTS, "one_bit", 0.25)


# ---- Messages ----------------------------------------------------------------------


def takes_messages(form: Format, op: str) -> tuple[tf.Tensor, Callable[[tf.Tensor], Any]]:
    """Two messages that an op takes, and the call."""
    codec, threshold = form.codec, form.threshold
    rows = encode(GRADIENTS, copies_of(RESIDUALS), codec, threshold, 1 if op == "decode" else 2)
    if op == "decode":
        return tf.repeat(rows, 2, axis=0), lambda rows: decode(rows, GRADIENTS, codec, threshold)
    if op == "reencode":
        return rows, lambda rows: again(rows, codec=codec)
    if op == "count":
        return rows, lambda rows: count(rows, 2, codec, threshold)
    if not form.automatic:
        rows = tf.repeat(count(rows, 2, codec, threshold), 2, axis=0)
    return rows, lambda rows: of_sums(rows, codec, threshold)


@pytest.mark.parametrize(
    ("form", "op"),
    [(form, op) for form in FIXED[:2] for op in ("decode", "count", "decode_shards")]
    + [(form, op) for form in AUTO[:2] for op in ("decode", "reencode", "decode_shards")],
    ids=str,
)
def test_messages_of_another_kind_are_refused(form: Format, op: str) -> None:
    rows, call = takes_messages(form, op)
    call(rows)
    for byte, named in {
        0: "magic",
        2: "wire version",
        3: "codec",
        7: "threshold",
        8: "blocks",
    }.items():
        data = rows.numpy().view(np.uint8)
        data[1, byte] ^= 0x11
        with pytest.raises(InvalidArgument, match=named):
            call(tf.constant(data.view(np.int64)))
    words = rows.shape[1]
    shapes = [
        *((2, width) for width in (0, 1, 4, 9, words - 2, words + 2)),
        *((2 * words,), (1, 2, words), ()),
    ]
    for shape in shapes:
        with pytest.raises(InvalidArgument, match=r"messages must have the shape|magic"):
            call(tf.zeros(shape, tf.int64))
