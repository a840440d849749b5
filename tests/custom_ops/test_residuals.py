"""Residuals in bfloat16 and int8: the results of float32, of which they keep the nearest."""

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.custom_ops import cases, native
from tests.custom_ops.native import AnyCodec, Levels
from tf_gc.state.stored import narrowed, widened

SIZES = [0, 1, 127, 128, 129, 509, 16 * 128, 7919]
each_kind = pytest.mark.parametrize("kind", [tf.bfloat16, tf.int8], ids=["bfloat16", "int8"])


@each_kind
@cases.each_auto
@cases.each_dtype
def test_they_become_what_the_oracle_says(
    on_each_target: cases.Targets, codec: AnyCodec, dtype: np.dtype[Any], kind: tf.DType
) -> None:
    for size, in_place in itertools.product(SIZES, (True, False)):
        rng = np.random.default_rng(size)
        gradient, wide = cases.random_pair(rng, size, dtype)
        wide[128:256] *= 2.0**-126  # no scale is that small
        before = narrowed(wide, kind).numpy()
        wide = widened(before, wide.shape).numpy()
        others = [cases.oracle_encode(codec, gradient, cases.random_residual(rng, size))]
        message = cases.oracle_encode(codec, gradient, wide)
        of_sum = cases.oracle_reencode(codec, others, gradient, wide)
        for each in (message, of_sum):
            each.residual = narrowed(each.residual, kind).numpy()
        options = {"in_place": in_place, "shift": 4 if kind == tf.int8 else 1}
        for library in on_each_target():
            cases.encode(library, codec, gradient, before, **options).assert_equals(message)
            made = cases.reencode(library, codec, others, gradient, before, **options)
            made.assert_equals(of_sum)


@each_kind
def test_small_parts_of_a_block_arrive_in_the_end(library: native.Library, kind: tf.DType) -> None:
    """Rounding to nearest does not make them vanish."""
    codec, rng = Levels.THREE_BIT, np.random.default_rng(2)
    kept, sent = narrowed(np.zeros(128, "f"), kind).numpy(), np.zeros(128)
    for _ in range(300):
        gradient = rng.standard_normal(128).astype(np.float32)
        gradient[:32] = 0.004
        message = cases.encode(library, codec, gradient, kept)
        kept = message.residual
        sent += cases.decode_sum(library, codec, [message], 128, cases.FLOAT32)
    np.testing.assert_allclose(sent[:32].mean(), 300 * 0.004, rtol=0.1)


def test_other_dtypes_and_fixed_thresholds_are_refused(library: native.Library) -> None:
    empty = [np.zeros(0, dtype) for dtype in (np.float32, cases.BFLOAT16, cases.BFLOAT16)]
    arguments = native.Library.encode_arguments(native.Codec.AUTO, *empty, *empty[:2])
    assert library.call("encode", *arguments)
    for other in (1, 4):
        assert not library.call("encode", *arguments[:-1], other)
    assert not library.call("encode", native.Codec.FIXED, *arguments[1:])
