"""The codecs' ops refuse wrong calls, by name and value, which then change nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.formats import AUTO, FIXED, Format, InvalidArgument, copies_of, make_replica
from tf_gc import ops
from tf_gc.ops import _loader, library

# A bucket of 300 elements, and messages of two shards of it.
GRADIENTS, RESIDUALS = make_replica([(300,)])
ROWS = ops.encode(GRADIENTS, copies_of(RESIDUALS), shards=2)
FIXED_ROWS = ops.encode(GRADIENTS, copies_of(RESIDUALS), "two_bit", 0.5, shards=2)
COUNTS = ops.count(FIXED_ROWS, 2, "two_bit", 0.5)
LONG = ops.encode([tf.linspace(-1.0, 1.0, 20_000)], [tf.Variable(tf.zeros(20_000))])
COMPACT, (LENGTH,) = ops.pack(LONG)
WORDS = LONG.shape[1]
CODECS = library.codec_names()
Call = Callable[..., Any]


def encode(codec: str = "two_bit", threshold: Any = "auto", **options: int) -> Any:
    return ops.encode(GRADIENTS, RESIDUALS, codec, threshold, **options)


def decode(messages: Any, codec: str = "two_bit", threshold: Any = "auto") -> Any:
    return ops.decode(messages, GRADIENTS, codec, threshold)


def reencode(messages: Any, shard: int = 0, shards: int = 2, **codecs: str) -> Any:
    return ops.reencode(messages, GRADIENTS, RESIDUALS, shard, shards, **codecs)


def count(messages: Any = FIXED_ROWS, n: int = 2, codec: str = "two_bit", t: Any = 0.5) -> Any:
    return ops.count(messages, n, codec, t)


def of_sums(
    messages: Any, codec: str = "two_bit", threshold: Any = "auto", replicas: int = 2
) -> Any:
    return ops.decode_shards(messages, GRADIENTS, codec, threshold, shards=2, replicas=replicas)


def of_residual(residual: tf.Tensor) -> Any:
    return ops.encode([tf.zeros(4)], [tf.Variable(residual)])


def changed(rows: tf.Tensor, byte: int, to: int | None = None) -> Any:
    """The second message with another byte."""
    data = rows.numpy().view(np.uint8)
    data[-1, byte] = data[-1, byte] ^ 0x11 if to is None else to
    return tf.constant(data.view(np.int64))


# Of each check of the kernels, and of what they give: what the error says, and the call.
NO_SHAPE = r"must have the shape|no message of codec \w+ has \d+ words"
OTHER_THRESHOLD = r"threshold 0\.5.*expects 0\.25"
SIX = tf.zeros([2, 6], tf.int64)
REFUSED: list[tuple[str, Call]] = [
    # Residuals.
    (r"residual 0 .*shape \[4\]", lambda: of_residual(tf.zeros(5))),
    (r"residual 0 .*shape \[4\]", lambda: of_residual(tf.zeros((2, 2)))),
    ("float32.*double", lambda: of_residual(tf.zeros(4, tf.float64))),
    (
        "float32 variable.*bfloat16",
        lambda: ops.encode([tf.zeros(4)], [tf.Variable(tf.zeros(4, tf.bfloat16))], "two_bit", 0.5),
    ),
    ("twice", lambda: ops.encode(GRADIENTS * 2, RESIDUALS * 2)),
    (
        r"residual 0 .*shape \[300\]",
        lambda: ops.reencode(ROWS, GRADIENTS, [tf.Variable(tf.zeros(299))], 0, 2),
    ),
    # Shards and rows.
    ("shards", lambda: encode("three_bit", shards=0)),
    (r"skip .* 2 shards, got 2", lambda: encode("three_bit", shards=2, skip=2)),
    (r"skip .*got -3", lambda: encode("three_bit", shards=2, skip=-3)),
    (r"skip .*fixed threshold, got 0", lambda: encode("two_bit", 0.5, shards=2, skip=0)),
    ("elements|overflow|large", lambda: encode(shards=2**61)),
    *((f"shard.*{n}", lambda n=n: reencode(ROWS, n)) for n in (2, -1)),
    ("shards", lambda: reencode(ROWS, 0, 0)),
    ("2 rows.*`shards`, got 3", lambda: reencode(tf.repeat(ROWS[:1], 3, axis=0))),
    ("2 rows.*`replicas`, got 1", lambda: count(FIXED_ROWS[:1])),
    ("2 rows.*`shards`, got 0", lambda: of_sums(ROWS[:0])),
    ("2 rows.*`shards`, got 1", lambda: of_sums(COUNTS, "two_bit", 0.5)),
    ("holds no row", lambda: ops.decode(ROWS[:0], [tf.zeros(256)])),
    # Codecs of sums, and the numbers that counts may have.
    *((f"sum_codec.*{c}", lambda c=c: reencode(ROWS, sum_codec=c)) for c in ("one_bit", "no_bit")),
    *((f"replicas.*{n}", lambda n=n: count(n=n)) for n in (0, 32768)),
    ("must hold 32767 rows", lambda: count(n=32767)),
    *((f"replicas.*{n}", lambda n=n: of_sums(COUNTS, "two_bit", 0.5, n)) for n in (0, 32768)),
    # Messages of other sizes and thresholds, and codes in the place of counts.
    (OTHER_THRESHOLD, lambda: of_sums([COUNTS] * 2, "two_bit", 0.25)),
    (OTHER_THRESHOLD, lambda: count(t=0.25)),
    (NO_SHAPE, lambda: of_sums([COUNTS] * 2, "two_bit", 0.5, replicas=8)),
    (NO_SHAPE, lambda: of_sums(FIXED_ROWS, "two_bit", 0.5)),
    (NO_SHAPE, lambda: count(ROWS)),
    (NO_SHAPE, lambda: reencode(FIXED_ROWS)),
    *((NO_SHAPE, lambda m=m: decode(m)) for m in (ROWS[0], ROWS[None], SIX)),
    *((NO_SHAPE, lambda m=m: count(m)) for m in (FIXED_ROWS[0], SIX[:, :5], SIX[:, :0])),
    *((NO_SHAPE, lambda m=m: ops.count_sent(m, "two_bit", "auto")) for m in (ROWS[0], ROWS[:, 1:])),
    # The compact wire.
    *((NO_SHAPE, lambda m=m: ops.pack(m)) for m in (ROWS[0], ROWS[None])),
    *((NO_SHAPE, lambda m=m: ops.unpack(m, WORDS)) for m in (COMPACT[0], COMPACT[None])),
    ("two_bit has 7 words", lambda: ops.pack(tf.zeros([2, 7], tf.int64))),
    *((f"has {n} words", lambda n=n: ops.unpack(COMPACT, n)) for n in (-8, 0, 1, 1 << 62)),
    ("words must be a scalar|rank 0", lambda: ops.unpack(COMPACT, [WORDS])),
    (r"row 0 of \d+ bytes is no compact message", lambda: ops.unpack(COMPACT, WORDS + 4)),
    (r"row 0 of \d+ bytes is no compact", lambda: ops.unpack(COMPACT[:, : LENGTH - 2], WORDS)),
    (OTHER_THRESHOLD, lambda: ops.pack(FIXED_ROWS, "two_bit", 0.25)),
    (OTHER_THRESHOLD, lambda: ops.unpack(FIXED_ROWS, FIXED_ROWS.shape[1], "two_bit", 0.25)),
    ("codec one_bit have no compact form", lambda: ops.pack(ROWS, "one_bit")),
    ("codec one_bit have no compact form", lambda: ops.unpack(ROWS, WORDS, "one_bit")),
    *(
        (
            "periods must be at most 4 numbers from 1 to 4096",
            lambda periods=periods: ops.pack(ROWS, "two_bit", "auto", periods),
        )
        for periods in ([0], [4097], [3, 1 << 40], [1, 2, 3, 4, 5])
    ),
    # Lists.
    ("`gradients` is empty", lambda: ops.encode([], [])),
    ("`gradients` is empty", lambda: ops.reencode(ROWS, [], [], 0, 2)),
    (r"1 gradients.*2", lambda: ops.encode(GRADIENTS, RESIDUALS * 2)),
    (r"2 gradients.*1", lambda: ops.reencode(ROWS, GRADIENTS * 2, RESIDUALS, 0, 2)),
    *(("`messages` is empty", lambda call=call: call([])) for call in (decode, reencode, count)),
    ("`like` is empty", lambda: ops.decode(ROWS, [])),
    ("`like` is empty", lambda: ops.decode_shards(ROWS, [], shards=2, replicas=2)),
    # Codecs and thresholds that there are not.
    (r"codec must be one of .*'one_bit'.*got 'five_bit'", lambda: ops.message_bits(2, "five_bit")),
    ("four_bit.*automatic scales only", lambda: ops.message_bits(2, "four_bit", 0.5)),
    ("four_bit.*automatic scales only", lambda: ops.is_compactible("four_bit", 0.5)),
    ("0 replicas", lambda: ops.message_bits(0)),
    (r"32768 replicas with threshold 0\.5", lambda: ops.message_bits(32768, "one_bit", 0.5)),
    *(
        (r"threshold must be .*'0\.5'", call)
        for call in (
            lambda: encode("two_bit", "0.5"),
            lambda: count(t="0.5"),
            lambda: ops.pack(ROWS, "two_bit", "0.5"),
            lambda: ops.count_sent(ROWS, "two_bit", "0.5"),
            lambda: ops.is_compactible("two_bit", "0.5"),
            lambda: ops.message_bits(1, "two_bit", "0.5"),
        )
    ),
    ("threshold must be a number", lambda: count(t="auto")),
]


@pytest.mark.parametrize(("says", "call"), REFUSED)
def test_a_wrong_call_is_refused_and_leaves_the_residuals(says: str, call: Call) -> None:
    before = RESIDUALS[0].numpy()
    with pytest.raises((tf.errors.OpError, ValueError), match=says):
        call()
    np.testing.assert_array_equal(RESIDUALS[0], before)


@pytest.mark.parametrize("dtype", [tf.float64, tf.int32])
def test_another_dtype_is_refused(dtype: tf.DType) -> None:
    with pytest.raises((InvalidArgument, TypeError)):
        ops.encode([tf.zeros(4, dtype)], [tf.Variable(tf.zeros(4))])


# ---- Codecs and thresholds -----------------------------------------------------------

# Of each op with a codec: a call with that one and a threshold.
CALLS: dict[str, Call] = {
    "encode": encode,
    "decode": lambda *codec: decode(ROWS, *codec),
    "decode_shards": lambda *codec: of_sums(COUNTS, *codec),
    "count": lambda codec, t=0.5: count(codec=codec, t=t),
    "pack": lambda *codec: ops.pack(ROWS, *codec),
    "unpack": lambda *codec: ops.unpack(COMPACT, WORDS, *codec),
    "reencode": lambda codec, *_: reencode(ROWS, codec=codec, sum_codec="two_bit"),
    "reencode, sum": lambda codec, *_: reencode(ROWS, sum_codec=codec),
}


@pytest.mark.parametrize("op", CALLS)
def test_an_unknown_codec_is_refused_by_name(op: str) -> None:
    before = RESIDUALS[0].numpy()
    for codec in ("", "five_bit", "TWO_BIT", "two_bit "):
        said = rf"codec' of \"{codec}\" .*\"two_bit\", \"one_bit\""
        with pytest.raises(InvalidArgument, match=said):
            CALLS[op](codec)
    np.testing.assert_array_equal(RESIDUALS[0], before)


@pytest.mark.parametrize("op", list(CALLS)[:6])
def test_a_threshold_that_a_codec_does_not_take_is_refused(op: str) -> None:
    for codec in ("three_bit", "four_bit", "eight_bit"):
        with pytest.raises(InvalidArgument, match=rf'codec "{codec}" has automatic scales only'):
            CALLS[op](codec, 0.5)
    nan, inf, most = float("nan"), float("inf"), 2.0**120
    for threshold in (0, -0.5, nan, inf, 2.0**-126 * 0.999, most):
        with pytest.raises(InvalidArgument, match=r"threshold must be in .* two_bit, got "):
            CALLS[op]("two_bit", threshold)
    if "pack" not in op:
        for threshold in (nan, inf, most, -most):
            with pytest.raises(InvalidArgument, match=r"threshold must be in .* one_bit, got "):
                CALLS[op]("one_bit", threshold)


@pytest.mark.parametrize("codec", CODECS)
def test_automatic_scales_have_no_threshold(codec: str) -> None:
    handles = [residual.handle for residual in RESIDUALS]
    for threshold in (0.5, -0.5, 1e-40, float("nan")):
        attributes = {"codec": codec, "automatic": True, "threshold": threshold}
        with pytest.raises(InvalidArgument, match=r"threshold must be 0 .*automatic, got"):
            _loader.load().tf_gc_encode(gradients=GRADIENTS, residuals=handles, **attributes)


def test_the_ends_of_ranges_are_taken() -> None:
    least = 2.0**-126
    message = ops.encode(GRADIENTS, copies_of(RESIDUALS), "two_bit", least)
    np.testing.assert_array_equal(np.abs(decode(message, "two_bit", least)), [[least] * 300])
    compact, _ = ops.pack(ROWS, "two_bit", "auto", [1, 2, 4095, 4096])
    np.testing.assert_array_equal(ops.unpack(compact, ROWS.shape[1]), ROWS)


def test_a_threshold_of_zero_has_no_sign() -> None:
    message = ops.encode(GRADIENTS, copies_of(RESIDUALS), "one_bit", 0.0)
    decode(message, "one_bit", -0.0)
    with pytest.raises(InvalidArgument, match=r"threshold 0.*expects 0\.25"):
        decode(message, "one_bit", 0.25)


# ---- Headers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "op"),
    [(form, op) for form in FIXED[:2] for op in ("decode", "count", "decode_shards")]
    + [(form, op) for form in AUTO for op in ("decode", "reencode", "decode_shards")]
    + [(AUTO[0], "pack"), (AUTO[0], "unpack")],
    ids=str,
)
def test_messages_of_another_kind_are_refused(form: Format, op: str) -> None:
    codec = form.codec, form.threshold
    calls: dict[str, Call] = {
        "decode": lambda rows: decode(rows, *codec),
        "decode_shards": lambda rows: of_sums(rows, *codec),
        "reencode": lambda rows: reencode(rows, codec=form.codec),
        "count": lambda rows: count(rows, 2, *codec),
        "pack": lambda rows: ops.pack(rows, *codec),
        "unpack": lambda rows: ops.unpack(rows, rows.shape[1], *codec),
    }
    call = calls[op]
    rows = ops.encode(GRADIENTS, copies_of(RESIDUALS), *codec, 1 if op == "decode" else 2)
    if op == "decode_shards" and not form.automatic:
        rows = count(rows, 2, *codec)
    rows = tf.repeat(rows, 2 // len(rows), axis=0)
    call(rows)
    for byte, named in {0: "magic", 2: "version", 3: "codec", 7: "threshold", 8: "blocks"}.items():
        with pytest.raises(InvalidArgument, match=f"row 1|{named}" if op == "unpack" else named):
            call(changed(rows, byte))
    expected = int(rows.numpy().view(np.uint8)[1, 3])
    if op == "decode":
        assert expected == library.codec_number(form.codec, form.automatic)
    for number in (0, 11, 99, 255):
        says = f"a message has codec {number}, and this replica expects {expected}"
        with pytest.raises(InvalidArgument, match=f"row 1|{says}" if op == "unpack" else says):
            call(changed(rows, 3, number))
