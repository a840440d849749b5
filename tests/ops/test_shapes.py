"""The shape functions of the codecs' ops: sizes that are known before a step runs."""

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import cases
from tests.ops.formats import FIXED, Format, each_format
from tf_gc.ops import count, decode, decode_shards, encode, reencode, two_bit_encode


@cases("of_gradient, of_residual", ((None,), (300,)), ((300,), (300,)), ((None,), (None,)), ids=str)
@each_format
def test_they_know_what_gradients_or_residuals_say(
    form: Format, of_gradient: tuple[int | None], of_residual: tuple[int | None]
) -> None:
    residual = tf.Variable(tf.zeros(300), shape=of_residual)

    def shape(rows: int, words: int) -> list[int | None]:
        return [rows, None if of_residual == (None,) else words]

    @tf.function
    def trace(g: tf.Tensor) -> tf.Tensor:
        message = encode([g], [residual], form.codec, form.threshold)
        assert message.shape.as_list() == shape(1, form.words(3))
        (total,) = decode(message, [g], form.codec, form.threshold)
        assert total.shape == g.shape
        # 3 blocks in 2 shards of 2.
        skip = 0 if form.automatic else None
        rows = encode([g], [residual], form.codec, form.threshold, 2, skip)
        assert rows.shape.as_list() == shape(2, form.words(2))
        if form.automatic:
            finer = reencode(rows, [g], [residual], 0, 2, form.codec, form.finer.codec)
            assert finer.shape.as_list() == shape(1, form.finer.words(2))
            shard = reencode(rows, [g], [residual], 0, 2, codec=form.codec)
            assert shard.shape.as_list() == shape(1, form.words(2))
        else:
            counts = {n: count(rows, n, form.codec, form.threshold) for n in (2, 8, 128)}
            sizes = [size.shape.as_list() for size in counts.values()]
            assert sizes == [shape(1, 18), shape(1, 34), shape(1, 66)]
            shard = counts[2]
        options = {"shards": 2, "replicas": 2}
        (total,) = decode_shards([shard] * 2, [g], form.codec, form.threshold, **options)
        assert total.shape == g.shape
        return total

    concrete = trace.get_concrete_function(tf.TensorSpec(of_gradient, tf.float32))
    if form.automatic:  # two rows of counts are none of 8 replicas
        assert concrete(tf.ones(300)).shape == (300,)


def test_the_message_of_a_gradient_out_of_a_loop_has_a_known_size() -> None:
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
        message = two_bit_encode([gradient], [residual], 0.5)
        assert message.shape == (1, FIXED[0].words(1))
        return decode(message, [gradient], "two_bit", 0.5)[0]

    np.testing.assert_array_equal(trace(tf.eye(7)[0]), [0, 0, 0, 0, 0.5, 0, 0])
    np.testing.assert_array_equal(residual, [0, 0, 0, 0, 0.5, 0, 0])


def test_they_refuse_what_does_not_fit() -> None:
    of_five, of_four = tf.Variable(tf.zeros(5)), tf.Variable(tf.zeros(4))
    trace = tf.function(lambda g: two_bit_encode([g], [of_five]))
    with pytest.raises(ValueError, match=r"must be equal|Dimensions"):
        trace.get_concrete_function(tf.TensorSpec((4,)))
    for function in (
        tf.function(lambda message: reencode(message, [tf.zeros(4)], [of_four], 0, 1)),
        tf.function(lambda message: count(message, 1, "two_bit", 0.5)),
    ):
        with pytest.raises(ValueError, match=r"Dimensions must be equal|words"):
            function.get_concrete_function(tf.TensorSpec((1, 9), tf.int64))
        function.get_concrete_function(tf.TensorSpec((1, None), tf.int64))
