"""What the one-bit codecs promise: recorded bytes, and MXNet's rule by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.custom_ops.cases import (
    Message,
    assert_same_bits,
    count,
    decode_sum,
    each_dtype,
    each_target,
    encode,
    oracle_count,
    oracle_decode_sum,
    oracle_encode,
    oracle_reencode,
    reencode,
)
from tests.custom_ops.native import Library, OneBit

GOLDEN = Path(__file__).parents[1] / "golden" / "one_bit_golden.npz"
FLOAT32 = np.dtype(np.float32)
ONE, NAN = 0x3F80, 0x7FC0  # as bfloat16

each_variant = pytest.mark.parametrize("codec", list(OneBit), ids=["fixed", "auto"])


def recorded(file: Any, name: str) -> Message:
    return Message(*(file[f"{name}/{part}"] for part in ("codes", "scales", "residual")))


@each_dtype
@each_variant
def test_the_oracle_gives_the_golden_bytes(codec: OneBit, dtype: np.dtype[Any]) -> None:
    with np.load(GOLDEN) as file:
        gradient, residual = file[f"{dtype}/gradient"].view(dtype), file[f"{dtype}/residual"]
        message = recorded(file, f"{dtype}/{codec.name.lower()}")
        oracle_encode(codec, gradient, residual).assert_equals(message)
        total = oracle_decode_sum(codec, [message] * 3, gradient.size, dtype)
        assert_same_bits(total, file[f"{dtype}/{codec.name.lower()}/sum_of_3"].view(dtype))
        if codec == OneBit.AUTO:
            again = oracle_reencode(codec, [message] * 2, gradient, residual)
            again.assert_equals(recorded(file, f"{dtype}/reencoded"))
        else:
            for bits in (4, 8, 16):
                assert_same_bits(
                    oracle_count(codec, [message] * 3, bits), file[f"{dtype}/counts{bits}"]
                )


@each_target
@each_dtype
@each_variant
def test_the_library_gives_the_golden_bytes(
    forced: Library, codec: OneBit, dtype: np.dtype[Any]
) -> None:
    with np.load(GOLDEN) as file:
        gradient, residual = file[f"{dtype}/gradient"].view(dtype), file[f"{dtype}/residual"]
        message = recorded(file, f"{dtype}/{codec.name.lower()}")
        encode(forced, codec, gradient, residual).assert_equals(message)
        total = decode_sum(forced, codec, [message] * 3, gradient.size, dtype)
        assert_same_bits(total, file[f"{dtype}/{codec.name.lower()}/sum_of_3"].view(dtype))
        if codec == OneBit.AUTO:
            again = reencode(forced, codec, [message] * 2, gradient, residual)
            again.assert_equals(recorded(file, f"{dtype}/reencoded"))
        else:
            for bits in (4, 8, 16):
                assert_same_bits(
                    count(forced, codec, [message] * 3, bits), file[f"{dtype}/counts{bits}"]
                )


# ---- By hand -----------------------------------------------------------------------


@each_target
def test_two_steps_of_mxnets_rule(forced: Library) -> None:
    """Derived by hand: 1 where p > threshold, which keeps p - 1; else 0, which keeps p + 1."""
    first = np.array([0.75, 0.5, 0.25, -2, 0, 3, -0.5, 0.5000001, 9, -9], np.float32)
    message = encode(forced, OneBit.FIXED, first, np.zeros(10, np.float32), 0.5)
    assert message.codes.tobytes() == bytes([0b10000101, 0b10000000]) + bytes(14)
    assert message.scales.tolist() == [ONE]
    kept = np.array([-0.25, 1.5, 1.25, -1, 1, 2, 0.5, np.float32(0.5000001) - 1, 8, -8], "f")
    assert_same_bits(message.residual, kept)
    sent = [1, -1, -1, -1, -1, 1, -1, 1, 1, -1]
    np.testing.assert_array_equal(decode_sum(forced, OneBit.FIXED, [message], 10, FLOAT32), sent)

    message = encode(forced, OneBit.FIXED, np.zeros(10, np.float32), kept, 0.5)
    assert message.codes.tobytes() == bytes([0b01101100, 0b10000000]) + bytes(14)
    kept = kept - np.array([-1, 1, 1, -1, 1, 1, -1, -1, 1, -1], np.float32)
    assert_same_bits(message.residual, kept)


@each_target
@pytest.mark.parametrize("threshold", [-3.0, 0.0, -0.0, 1e-40, 7.5])
def test_any_finite_number_is_a_threshold(forced: Library, threshold: float) -> None:
    near = np.float32(threshold)
    values = [near, np.nextafter(near, np.float32(9)), np.nextafter(near, np.float32(-9))]
    gradient = np.resize(np.array(values, np.float32), 300)
    message = encode(forced, OneBit.FIXED, gradient, np.zeros(300, np.float32), threshold)
    message.assert_equals(
        oracle_encode(OneBit.FIXED, gradient, np.zeros(300, np.float32), threshold)
    )
    plus = np.unpackbits(message.codes)[:300].astype(bool)
    np.testing.assert_array_equal(plus, np.resize([False, True, False], 300))


@each_target
def test_a_block_sends_its_signs_and_its_mean_magnitude(forced: Library) -> None:
    gradient = np.resize(np.array([1, -2, 3, -0.0, 0, -6], np.float32), 132)
    message = encode(forced, OneBit.AUTO, gradient, np.zeros(132, np.float32))
    # 21 times the sum of six, 12, and 1 + 2 make 255 / 128; 3, 0, 0 and 6 make 9 / 4.
    assert message.scales.tolist() == [0x3FFF, 0x4010]
    sent = decode_sum(forced, OneBit.AUTO, [message], 132, FLOAT32)
    signs = np.resize([1, -1, 1, 1, 1, -1], 132)
    np.testing.assert_array_equal(sent[:128], signs[:128] * (255 / 128))
    np.testing.assert_array_equal(sent[128:], signs[128:] * 2.25)
    np.testing.assert_array_equal(message.residual, gradient - sent)
    # The padding of the last block is 0: 1 1 1 0 and nothing else.
    assert message.codes[16:].tobytes() == bytes([0b11100000]) + bytes(15)


@each_target
def test_a_block_of_zeros_has_the_scale_0(forced: Library) -> None:
    zeros = np.zeros(300, np.float32)
    message = encode(forced, OneBit.AUTO, zeros, zeros.copy())
    assert not message.scales.any()
    assert not message.residual.any()
    assert not decode_sum(forced, OneBit.AUTO, [message], 300, FLOAT32).any()


@each_target
@each_variant
@pytest.mark.parametrize("bad", [np.nan, -np.inf, 2.0**120])
def test_a_block_that_is_not_finite_says_so_and_keeps_its_residuals(
    forced: Library, codec: OneBit, bad: float
) -> None:
    rng = np.random.default_rng(1)
    gradient, residual = rng.standard_normal((2, 400)).astype(np.float32)
    clean = encode(forced, codec, gradient, residual)
    spoiled = gradient.copy()
    spoiled[[130, 399]] = bad
    message = encode(forced, codec, spoiled, residual)
    assert (message.scales == NAN).tolist() == [False, True, False, True]
    assert not message.codes[16:32].any()
    assert not message.codes[48:].any()
    assert_same_bits(message.residual[128:256], residual[128:256])
    assert_same_bits(message.residual[384:], residual[384:])
    for part in (slice(0, 128), slice(256, 384)):
        assert_same_bits(message.residual[part], clean.residual[part])
    # The next step is clean.
    encode(forced, codec, gradient[128:256], message.residual[128:256]).assert_equals(
        Message(clean.codes[16:32], clean.scales[1:2], clean.residual[128:256])
    )
