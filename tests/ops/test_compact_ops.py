"""Pack and unpack through TensorFlow: no bit is lost. test_refusals.py has what is refused."""

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import cases
from tf_gc.ops import encode, is_compactible, pack, periods, unpack
from tf_gc.ops.library import codec_names, compact_version

Codec = tuple[str, float | str]
each_codec = cases(
    "codec",
    *(("three_bit", "auto"), ("two_bit", 0.5), ("two_bit", "auto"), ("four_bit", "auto")),
    ("eight_bit", "auto"),
    ids=lambda codec: f"{codec[0]} {codec[1]}",
)


def messages_of(codec: Codec, *gradients: np.ndarray) -> tf.Tensor:
    """The message of each gradient, [gradients, words]."""
    rows = [encode([tf.constant(g)], [tf.Variable(tf.zeros(g.shape))], *codec) for g in gradients]
    return tf.concat(rows, axis=0)


def few_large(size: int, seed: int = 0) -> np.ndarray:
    # Of few large elements, as gradients are.
    return (np.random.default_rng(seed).normal(size=size) ** 3 / 4).astype(np.float32)


def test_the_magic_number_of_a_compact_message_has_the_version() -> None:
    messages = messages_of(("two_bit", "auto"), np.zeros(100_000, np.float32))
    compact, _ = pack(messages, "two_bit")
    assert compact.numpy().view(np.uint8)[0, :2].tobytes() == b"G%d" % compact_version()


@each_codec
@cases("size", 300_000, 0, 1, 129)
def test_no_bit_is_lost(codec: Codec, size: int) -> None:
    wild = few_large(size)
    wild[::97] = np.nan
    messages = messages_of(codec, few_large(size), np.zeros(size, np.float32), wild)
    rows, words = messages.shape
    compact, lengths = pack(messages, *codec)
    assert lengths.shape == (rows,)
    assert compact.shape[0] == rows
    assert (lengths.numpy() <= words).all()
    np.testing.assert_array_equal(unpack(compact, words, *codec), messages)
    sent = compact[:, : lengths.numpy().max()]  # the shorter ones with zeros after them
    np.testing.assert_array_equal(unpack(sent, words, *codec), messages)
    for row, length in enumerate(lengths.numpy()):
        one = messages[row : row + 1]
        alone, _ = pack(one, *codec)
        np.testing.assert_array_equal(alone[0], compact[row])
        np.testing.assert_array_equal(unpack(alone[:, :length], words, *codec), one)
        assert not compact.numpy()[row, length:].any()


def of_columns(row_blocks: int, blocks: int = 2500) -> np.ndarray:
    """Gradients of a matrix with rows of `row_blocks`: in a column they are nearly equal."""
    of_row = few_large(row_blocks * 128)
    noise = np.random.default_rng(3).normal(1, 0.1, size=blocks * 128)
    return (np.resize(of_row, blocks * 128) * noise).astype(np.float32)


@each_codec
def test_columns_take_less_if_the_period_of_their_rows_is_given(codec: Codec) -> None:
    messages = messages_of(codec, of_columns(3), of_columns(5))
    _, without = pack(messages, *codec)
    for given in (periods([(833, 384), (500, 640)]), [5, 7, 1024, 3]):
        compact, lengths = pack(messages, *codec, given)
        assert (lengths.numpy() < 0.9 * without.numpy()).all()
        np.testing.assert_array_equal(unpack(compact, messages.shape[1], *codec), messages)


def test_the_period_of_a_matrix_is_that_of_its_last_dimension() -> None:
    expected = {
        **{(2048, 2048): 16, (1000, 100): 25, (500, 128): 1, (500, 64): 1, (10_000, 1): 1},
        **{(3, 3, 64, 192): 3, (64, 3, 3, 100): 25, (9, 1023): 1023, (1, 1024 * 128): 1024},
        (64, 128): 1,  # as many blocks as a tile has
    }
    found = {shape: periods([(1 << 20,), shape, (), (3, 3)]) for shape in expected}
    assert found == {shape: (period,) for shape, period in expected.items()}
    vectors, small, long_rows = [(), (1,), (1 << 20,)], [(63, 128), (90, 91), (0, 100)], [(9, 4097)]
    for shape in [*vectors, *small, (3, 3, 3, 64), *long_rows, (2, 4097 * 128)]:
        assert periods([shape, shape]) == (), shape


def test_the_periods_of_most_elements_come_first() -> None:
    assert periods([(100, 100), (200, 384), (300, 256)]) == (3, 2, 25)  # by 76 800, 76 800 and less
    # Tensors of the same period count together, and the fifth period is left out.
    shapes = [(100, 900), (1000, 100), (400, 256), (300, 300), (999, 100), (300, 384), (2000, 64)]
    assert periods(shapes) == (25, 1, 3, 2)


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
    messages = messages_of(codec, few_large(3000), few_large(3000, 1))
    words = messages.shape[1]

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
        np.testing.assert_array_equal(concrete(messages), messages)


def test_which_codecs_have_a_compact_form() -> None:
    compactible = {name for name in codec_names() if is_compactible(name, "auto")}
    assert compactible == {"two_bit", "three_bit", "four_bit", "eight_bit"}
    assert is_compactible("two_bit", 0.5)
    assert not is_compactible("one_bit", 0.0)
