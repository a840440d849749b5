"""Residuals in bfloat16: the results of float32, of which they keep the nearest bfloat16."""

import itertools
from typing import Any

import numpy as np

from tests.custom_ops import cases, native
from tests.custom_ops.native import AnyCodec, Levels

SIZES = [0, 1, 127, 128, 129, 509, 16 * 128, 7919]


@cases.each_auto
@cases.each_dtype
def test_they_become_what_the_oracle_says(
    on_each_target: cases.Targets, codec: AnyCodec, dtype: np.dtype[Any]
) -> None:
    for size, in_place in itertools.product(SIZES, (True, False)):
        rng = np.random.default_rng(size)
        gradient, wide = cases.random_pair(rng, size, dtype)
        before = wide.astype(cases.BFLOAT16)
        wide = before.astype(np.float32)
        others = [cases.oracle_encode(codec, gradient, cases.random_residual(rng, size))]
        message = cases.oracle_encode(codec, gradient, wide)
        of_sum = cases.oracle_reencode(codec, others, gradient, wide)
        for each in (message, of_sum):
            each.residual = each.residual.astype(cases.BFLOAT16)
        options = {"in_place": in_place, "shift": 1}
        for library in on_each_target():
            cases.encode(library, codec, gradient, before, **options).assert_equals(message)
            made = cases.reencode(library, codec, others, gradient, before, **options)
            made.assert_equals(of_sum)


def test_small_parts_of_a_block_arrive_in_the_end(library: native.Library) -> None:
    """Rounding to nearest does not make them vanish."""
    codec, rng = Levels.THREE_BIT, np.random.default_rng(2)
    kept, sent = np.zeros(128, cases.BFLOAT16), np.zeros(128)
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
    for other in (1, 3):
        assert not library.call("encode", *arguments[:-1], other)
    assert not library.call("encode", native.Codec.FIXED, *arguments[1:])
