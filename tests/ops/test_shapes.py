"""What the shape functions of the codecs' ops know before a step runs."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import cases
from tests.ops.formats import Format, each_auto, each_format, make_replica
from tf_gc.ops import count, decode, decode_shards, encode, reencode, two_bit_encode


def test_the_bytes_of_three_blocks() -> None:
    """By hand, so that what the other tests compute is right: a header, codes, scales, padding."""
    size = {
        **{Format("two_bit", 0.5): 112, Format("two_bit", "auto"): 128},
        **{Format("one_bit", 0.5): 80, Format("one_bit", "auto"): 80},
        **{Format("three_bit", "auto"): 176, Format("four_bit", "auto"): 224},
    }
    for form, expected in size.items():
        assert 8 * form.words(3) == expected
        message = encode(*make_replica([(129,), (2, 5)]), form.codec, form.threshold)
        assert message.shape == (1, expected // 8)


@each_format
def test_shape_functions_know_the_message_and_the_sums(form: Format) -> None:
    residuals = [tf.Variable(tf.zeros(129)), tf.Variable(tf.zeros((2, 5)))]

    @tf.function
    def trace(g: tf.Tensor, h: tf.Tensor) -> None:
        message = encode([g, h], residuals, form.codec, form.threshold)
        assert message.shape == [1, form.words(3)]
        sums = decode(message, [g, h], form.codec, form.threshold)
        assert [s.shape for s in sums] == [g.shape, h.shape]

    trace.get_concrete_function(tf.TensorSpec((129,)), tf.TensorSpec((2, 5)))


@cases("known", False, True)
@each_format
def test_a_gradient_of_open_size_takes_that_of_its_residual(form: Format, known: bool) -> None:
    residual = tf.Variable(tf.zeros(300), shape=(300,) if known else (None,))

    @tf.function
    def trace(g: tf.Tensor) -> tf.Tensor:
        message = encode([g], [residual], form.codec, form.threshold)
        assert message.shape.as_list() == [1, form.words(3) if known else None]
        (total,) = decode(message, [g], form.codec, form.threshold)
        return total

    concrete = trace.get_concrete_function(tf.TensorSpec((None,), tf.float32))
    assert concrete(tf.ones(300)).shape == (300,)


@each_format
def test_the_message_of_a_gradient_out_of_a_loop_has_a_known_size(form: Format) -> None:
    residual = tf.Variable(tf.zeros(7))

    @tf.function
    def trace(x: tf.Tensor) -> tf.Tensor:
        _, gradient = tf.while_loop(
            lambda i, _: i < 3,
            lambda i, g: (i + 1, tf.concat([g[1:], g[:1]], axis=0)),
            (0, x),
            shape_invariants=(tf.TensorShape(()), tf.TensorShape((None,))),
        )
        assert gradient.shape.as_list() == [None]
        message = encode([gradient], [residual], form.codec, form.threshold)
        assert message.shape == (1, form.words(1))
        return decode(message, [gradient], form.codec, form.threshold)[0]

    gradient = np.roll(np.eye(7, dtype=np.float32)[0], -3)
    total = trace(tf.eye(7)[0])
    copies = [tf.Variable(tf.zeros(7))]
    message = encode([tf.constant(gradient)], copies, form.codec, form.threshold)
    np.testing.assert_array_equal(total, decode(message, [gradient], form.codec, form.threshold)[0])
    np.testing.assert_array_equal(residual, copies[0])
    if form == Format("two_bit", 0.5):
        np.testing.assert_array_equal(total, [0, 0, 0, 0, 0.5, 0, 0])


def test_shape_functions_refuse_a_residual_of_another_shape() -> None:
    residual = tf.Variable(tf.zeros(5))

    @tf.function
    def trace(g: tf.Tensor) -> tf.Tensor:
        return two_bit_encode([g], [residual])

    with pytest.raises(ValueError, match=r"must be equal|Dimensions"):
        trace.get_concrete_function(tf.TensorSpec((4,)))


@each_auto
def test_shape_functions_know_the_shards_and_their_sums(form: Format) -> None:
    residuals = [tf.Variable(tf.zeros((129,))), tf.Variable(tf.zeros((2, 5)))]

    @tf.function
    def trace(g: tf.Tensor, h: tf.Tensor) -> None:
        # 3 blocks in 2 shards of 2.
        rows = encode([g, h], residuals, form.codec, shards=2, skip=0)
        assert rows.shape == [2, form.words(2)]
        total = reencode(rows, [g, h], residuals, 0, 2, codec=form.codec)
        assert total.shape == [1, form.words(2)]
        finer = reencode(rows, [g, h], residuals, 0, 2, form.codec, form.finer.codec)
        assert finer.shape == [1, form.finer.words(2)]
        sums = decode_shards([total] * 2, [g, h], form.codec, shards=2, replicas=2)
        assert [s.shape for s in sums] == [g.shape, h.shape]

    trace.get_concrete_function(tf.TensorSpec((129,)), tf.TensorSpec((2, 5)))


@pytest.mark.parametrize("codec", ["two_bit", "one_bit"])
def test_shape_functions_know_the_messages_of_counts(codec: str) -> None:
    residuals = [tf.Variable(tf.zeros((129,))), tf.Variable(tf.zeros((2, 5)))]

    @tf.function
    def trace(g: tf.Tensor, h: tf.Tensor) -> None:
        rows = encode([g, h], residuals, codec, 0.5, shards=2)
        assert rows.shape == [2, Format(codec, 0.5).words(2)]
        sizes = [count(rows, n, codec, 0.5).shape[1] for n in (2, 8, 128)]
        assert sizes == [(16 + 2 * size) // 8 for size in (64, 128, 256)]

    trace.get_concrete_function(tf.TensorSpec((129,)), tf.TensorSpec((2, 5)))


@cases("known", False, True)
@each_format
def test_shards_of_a_gradient_of_open_size(form: Format, known: bool) -> None:
    residual = tf.Variable(tf.zeros((300,)), shape=(300,) if known else (None,))
    like = {"codec": form.codec, "threshold": form.threshold, "shards": 2, "replicas": 2}

    @tf.function
    def trace(g: tf.Tensor) -> tf.Tensor:
        skip = 0 if form.automatic else None
        rows = encode([g], [residual], form.codec, form.threshold, 2, skip)
        assert rows.shape.as_list() == [2, form.words(2) if known else None]
        if form.automatic:
            total = reencode([rows[1:], rows[1:]], [g], [residual], 0, 2, codec=form.codec)
            assert total.shape.as_list() == [1, form.words(2) if known else None]
        else:
            total = count(rows, 2, form.codec, form.threshold)
            assert total.shape.as_list() == [1, 2 + 2 * 8 if known else None]
        return decode_shards([total] * 2, [g], **like)[0]

    concrete = trace.get_concrete_function(tf.TensorSpec((None,), tf.float32))
    assert concrete(tf.ones(300)).shape == (300,)


def test_shape_functions_refuse_messages_of_the_wrong_length() -> None:
    residual = tf.Variable(tf.zeros((4,)))

    @tf.function
    def total_of(message: tf.Tensor) -> tf.Tensor:
        return reencode(message, [tf.zeros(4)], [residual], 0, 1)

    @tf.function
    def counts_of(message: tf.Tensor) -> tf.Tensor:
        return count(message, 1, "two_bit", 0.5)

    for function in (total_of, counts_of):
        with pytest.raises(ValueError, match=r"Dimensions must be equal|words"):
            function.get_concrete_function(tf.TensorSpec((1, 9), tf.int64))
        function.get_concrete_function(tf.TensorSpec((1, None), tf.int64))
