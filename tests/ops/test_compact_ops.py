"""Pack and unpack through TensorFlow: no bit is lost, and what is broken is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_gc.ops import encode, is_compactible, pack, unpack
from tf_gc.ops.library import codec_names, compact_version

HEADER_BYTES = 16
Codec = tuple[str, float | str]
CODECS: list[Codec] = [
    ("two_bit", 0.5),
    ("two_bit", "auto"),
    ("three_bit", "auto"),
    ("four_bit", "auto"),
]
InvalidArgument = tf.errors.InvalidArgumentError

each_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: f"{codec[0]} {codec[1]}")


def messages_of(codec: Codec, *gradients: np.ndarray, shards: int = 1) -> tf.Tensor:
    """The message of each gradient, [gradients * shards, words]."""
    rows = [
        encode([tf.constant(g)], [tf.Variable(tf.zeros(g.shape))], *codec, shards=shards)
        for g in gradients
    ]
    return tf.concat(rows, axis=0)


def normal(size: int, seed: int = 0) -> np.ndarray:
    # Of few large elements, as gradients are.
    return (np.random.default_rng(seed).normal(size=size) ** 3 / 4).astype(np.float32)


def test_the_magic_number_of_a_compact_message_has_the_version() -> None:
    messages = messages_of(("two_bit", "auto"), np.zeros(100_000, np.float32))
    compact, _ = pack(messages, "two_bit")
    assert compact.numpy().view(np.uint8)[0, :2].tobytes() == b"G%d" % compact_version()


@each_codec
@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 5000, 300_000])
def test_no_bit_is_lost(codec: Codec, size: int) -> None:
    wild = normal(size)
    wild[::97] = np.nan
    messages = messages_of(codec, normal(size), np.zeros(size, np.float32), wild)
    rows, words = messages.shape
    compact, lengths = pack(messages, *codec)
    assert lengths.shape == (rows,)
    assert compact.shape[0] == rows
    assert (lengths.numpy() <= words).all()
    assert (8 * lengths.numpy() % 16 == 0).all()
    np.testing.assert_array_equal(unpack(compact, words, *codec), messages)
    sent = compact[:, : lengths.numpy().max()]  # the shorter ones with zeros after them
    np.testing.assert_array_equal(unpack(sent, words, *codec), messages)
    for row, length in enumerate(lengths.numpy()):
        alone = compact[row : row + 1, :length]
        np.testing.assert_array_equal(unpack(alone, words, *codec), messages[row : row + 1])
        assert not compact.numpy()[row, length:].any()


@each_codec
def test_what_is_frequent_takes_less(codec: Codec) -> None:
    messages = messages_of(codec, normal(1 << 17), np.zeros(1 << 17, np.float32))
    some, none = pack(messages, *codec)[1].numpy()
    assert some < 0.85 * messages.shape[1]
    assert none < 0.2 * messages.shape[1]


@each_codec
@pytest.mark.parametrize("rows", [0, 1, 2, 5, 33])
def test_many_rows_are_packed_as_each_alone(codec: Codec, rows: int) -> None:
    messages = messages_of(codec, normal(40_000), shards=5)
    messages = tf.gather(messages, tf.range(rows) % 5)
    compact, lengths = pack(messages, *codec)
    assert lengths.shape == (rows,)
    for row in range(rows):
        alone, length = pack(messages[row : row + 1], *codec)
        np.testing.assert_array_equal(alone[0], compact[row])
        assert length[0] == lengths[row]
    np.testing.assert_array_equal(unpack(compact, messages.shape[1], *codec), messages)


@each_codec
def test_a_message_with_any_codes_comes_back(codec: Codec) -> None:
    random = np.random.default_rng(1)
    data = messages_of(codec, normal(3000)).numpy().view(np.uint8)
    for _ in range(20):
        data[:, HEADER_BYTES:-16] = random.integers(256, size=data[:, HEADER_BYTES:-16].shape)
        messages = tf.constant(data.view(np.int64))
        compact, _ = pack(messages, *codec)
        np.testing.assert_array_equal(unpack(compact, messages.shape[1], *codec), messages)


@each_codec
def test_broken_messages_are_refused_or_give_some_message(codec: Codec) -> None:
    random = np.random.default_rng(2)
    messages = messages_of(codec, normal(30_000))
    words = messages.shape[1]
    compact, (length,) = pack(messages, *codec)
    whole = compact.numpy()[:, :length].view(np.uint8)
    refused = 0
    for _ in range(200):
        broken = whole.copy()
        broken[0, random.integers(broken.size, size=3)] ^= random.integers(1, 256, 3, np.uint8)
        try:
            assert unpack(tf.constant(broken.view(np.int64)), words, *codec).shape == (1, words)
        except InvalidArgument:
            refused += 1
    assert refused > 100
    for kept in range(0, length, 97):
        with pytest.raises(InvalidArgument, match=r"row 0 of \d+ bytes is no compact message"):
            unpack(compact[:, :kept], words, *codec)


@pytest.mark.parametrize(
    ("byte", "named"),
    [(0, "magic"), (2, "wire version"), (3, "codec"), (7, "threshold"), (8, "blocks")],
)
def test_a_header_of_another_kind_is_refused(byte: int, named: str) -> None:
    codec = ("three_bit", "auto")
    messages = messages_of(codec, normal(10_000), normal(10_000, 1))
    data = messages.numpy().view(np.uint8)
    data[1, byte] ^= 0x11
    with pytest.raises(InvalidArgument, match=named):
        pack(tf.constant(data.view(np.int64)), *codec)
    compact = pack(messages, *codec)[0].numpy().view(np.uint8)
    compact[1, byte] ^= 0x11
    with pytest.raises(InvalidArgument, match=f"row 1|{named}"):
        unpack(tf.constant(compact.view(np.int64)), messages.shape[1], *codec)


def test_codec_threshold_and_words_must_agree() -> None:
    messages = messages_of(("two_bit", 0.5), normal(10_000))
    words = messages.shape[1]
    compact, _ = pack(messages, "two_bit", 0.5)
    with pytest.raises(InvalidArgument, match=r"threshold 0\.5.*expects 0\.25"):
        pack(messages, "two_bit", 0.25)
    with pytest.raises(InvalidArgument, match=r"threshold 0\.5.*expects 0\.25"):
        unpack(compact, words, "two_bit", 0.25)
    with pytest.raises(InvalidArgument, match=r"row 0|words"):
        unpack(compact, words, "two_bit", "auto")
    with pytest.raises(InvalidArgument, match="row 0"):
        unpack(compact, words + 4, "two_bit", 0.5)
    for wrong in (-8, -1, 0, 1, words + 1, 1 << 62):
        with pytest.raises(InvalidArgument, match="words"):
            unpack(compact, wrong, "two_bit", 0.5)


@pytest.mark.parametrize("call", [pack, lambda m, *codec: unpack(m, 12, *codec)])
def test_wrong_arguments_are_refused(call: Callable[..., Any]) -> None:
    messages = messages_of(("two_bit", "auto"), normal(250))
    with pytest.raises(
        InvalidArgument, match=r"'codec' of \"zip\" is not in the list .*\"two_bit\""
    ):
        call(messages, "zip", "auto")
    with pytest.raises(InvalidArgument, match=r"no compact form: codes of one bit"):
        call(messages, "one_bit", "auto")
    with pytest.raises(InvalidArgument, match="automatic scales only"):
        call(messages, "three_bit", 0.5)
    with pytest.raises(InvalidArgument, match="threshold must be"):
        call(messages, "two_bit", -1.0)
    with pytest.raises(ValueError, match="threshold must be"):
        call(messages, "two_bit", "0.5")
    for shape in ((12,), (1, 1, 12), ()):
        with pytest.raises(InvalidArgument, match="must have the shape"):
            call(tf.zeros(shape, tf.int64), "two_bit", "auto")


def test_no_rows_may_be_as_long_as_any_message() -> None:
    words = (16 + (1 << 50) * 32) // 8
    compact, lengths = pack(tf.zeros([0, words], tf.int64), "two_bit", 0.5)
    assert compact.shape[0] == lengths.shape[0] == 0
    assert compact.shape[1] >= words
    for width in (2, 2**62):
        none = tf.zeros([0, width], tf.int64)
        assert unpack(none, words, "two_bit", 0.5).shape == (0, words)


@each_codec
def test_shape_functions_know_the_messages(codec: Codec) -> None:
    words = messages_of(codec, normal(3000)).shape[1]

    @tf.function
    def round_trip(messages: tf.Tensor) -> tf.Tensor:
        compact, lengths = pack(messages, *codec)
        assert compact.shape[0] == lengths.shape[0] == messages.shape[0]
        assert (compact.shape[1] is None) == (messages.shape[1] is None)
        result = unpack(compact[:, : tf.reduce_max(lengths)], words, *codec)
        assert result.shape == [messages.shape[0], words]
        words_of_step = tf.shape(messages, tf.int64)[1]
        return unpack(compact, words_of_step, *codec)

    for wrong in ((2, words + 1), (1, 2, words)):
        with pytest.raises(ValueError, match=r"rank|words"):
            round_trip.get_concrete_function(tf.TensorSpec(wrong, tf.int64))
    for shape in ((2, words), (None, words), (2, None), (None, None)):
        concrete = round_trip.get_concrete_function(tf.TensorSpec(shape, tf.int64))
        messages = messages_of(codec, normal(3000), normal(3000, 1))
        np.testing.assert_array_equal(concrete(messages), messages)


def test_which_codecs_have_a_compact_form() -> None:
    assert {name for name in codec_names() if is_compactible(name, "auto")} == {
        "two_bit",
        "three_bit",
        "four_bit",
    }
    assert is_compactible("two_bit", 0.5)
    assert not is_compactible("one_bit", 0.0)
    with pytest.raises(ValueError, match="automatic scales only"):
        is_compactible("four_bit", 0.5)
