"""What the codecs with several levels promise: recorded bytes, and their rule by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.custom_ops.cases import (
    Array,
    Message,
    assert_same_bits,
    decode_sum,
    each_dtype,
    each_target,
    encode,
    oracle_decode_sum,
    oracle_encode,
    oracle_reencode,
    reencode,
)
from tests.custom_ops.native import CODE_BITS, Levels, Library
from tests.oracles import levels as oracle_levels

GOLDEN = Path(__file__).parents[1] / "golden" / "levels_golden.npz"
FLOAT32 = np.dtype(np.float32)

each_codec = pytest.mark.parametrize("codec", list(Levels), ids=["three_bit", "four_bit"])


def recorded(file: Any, name: str) -> Message:
    return Message(*(file[f"{name}/{part}"] for part in ("codes", "scales", "residual")))


@each_dtype
@each_codec
def test_the_oracle_gives_the_golden_bytes(codec: Levels, dtype: np.dtype[Any]) -> None:
    name = f"{dtype}/{codec.name.lower()}"
    with np.load(GOLDEN) as file:
        gradient, residual = file[f"{dtype}/gradient"].view(dtype), file[f"{dtype}/residual"]
        message = recorded(file, name)
        oracle_encode(codec, gradient, residual).assert_equals(message)
        total = oracle_decode_sum(codec, [message] * 3, gradient.size, dtype)
        assert_same_bits(total, file[f"{name}/sum_of_3"].view(dtype))
        again = oracle_reencode(codec, [message] * 2, gradient, residual)
        again.assert_equals(recorded(file, f"{name}/reencoded"))


@each_target
@each_dtype
@each_codec
def test_the_library_gives_the_golden_bytes(
    forced: Library, codec: Levels, dtype: np.dtype[Any]
) -> None:
    name = f"{dtype}/{codec.name.lower()}"
    with np.load(GOLDEN) as file:
        gradient, residual = file[f"{dtype}/gradient"].view(dtype), file[f"{dtype}/residual"]
        message = recorded(file, name)
        encode(forced, codec, gradient, residual).assert_equals(message)
        total = decode_sum(forced, codec, [message] * 3, gradient.size, dtype)
        assert_same_bits(total, file[f"{name}/sum_of_3"].view(dtype))
        again = reencode(forced, codec, [message] * 2, gradient, residual)
        again.assert_equals(recorded(file, f"{name}/reencoded"))


# ---- By hand -----------------------------------------------------------------------


@each_target
def test_a_block_by_hand(forced: Library) -> None:
    """The largest is 64, and so is the scale: levels of 10, 32 and 64."""
    gradient = np.array([64, -56, 48, -47.75, 21, 20.75, -5, 4.75, 0, -0.0], np.float32)
    message = encode(forced, Levels.THREE_BIT, gradient, np.zeros(10, np.float32))
    assert message.scales.tolist() == [0x4280]
    # Numbers of the levels 3 3 3 2 2 1 1 0 0 0; negative are elements 1, 3 and 6.
    low, high, minus = 0b01100111, 0b00011111, 0b01001010
    planes = [bytes([bits]) + bytes(15) for bits in (low, high, minus)]
    assert message.codes.tobytes() == b"".join(planes)
    sent = [64, -64, 64, -32, 32, 10, -10, 0, 0, 0]
    np.testing.assert_array_equal(
        decode_sum(forced, Levels.THREE_BIT, [message], 10, FLOAT32), sent
    )
    np.testing.assert_array_equal(message.residual, gradient - np.array(sent, np.float32))


@each_target
def test_four_bits_by_hand(forced: Library) -> None:
    """The largest is 72, so the scale is 64: levels of 2, 8, 16, 24, 32, 48 and 64."""
    gradient = np.array([72, 56, 55, -40, 39, 20, -19, 12, 5, 4, -1, 0.875], np.float32)
    message = encode(forced, Levels.FOUR_BIT, gradient, np.zeros(12, np.float32))
    assert message.scales.tolist() == [0x4280]
    sent = [64, 64, 48, -48, 32, 24, -16, 16, 8, 2, -2, 0]
    np.testing.assert_array_equal(decode_sum(forced, Levels.FOUR_BIT, [message], 12, FLOAT32), sent)
    numbers = oracle_levels.unpack(message.codes, 12, 4)
    assert numbers.tolist() == [7, 7, 6, 8 | 6, 5, 4, 8 | 3, 3, 2, 1, 8 | 1, 0]


def near_boundaries(scale: float, bits: int) -> Array:
    """What is half way between two levels, with neighbours and both signs, after the largest."""
    levels = scale * oracle_levels.LEVELS[bits]
    middle = ((levels[1:] + levels[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(middle, np.float32(to)) for to in (0, np.inf)]
    values = np.concatenate([middle, *near])
    largest = np.float32(scale) / oracle_levels.SCALE_FACTOR[bits]
    return np.concatenate([[largest], values, -values]).astype(np.float32)


@each_target
@each_codec
@pytest.mark.parametrize("exponent", [-118, -117, -60, 0, 60, 118])
@pytest.mark.parametrize("mantissa", [1.0, 1.0078125, 1.5, 1.9921875])
def test_the_nearest_level_is_sent(
    forced: Library, codec: Levels, exponent: int, mantissa: float
) -> None:
    gradient = near_boundaries(mantissa * 2.0**exponent, CODE_BITS[codec])
    residual = np.zeros(gradient.size, np.float32)
    message = encode(forced, codec, gradient, residual)
    message.assert_equals(oracle_encode(codec, gradient, residual))
    sent = decode_sum(forced, codec, [message], gradient.size, FLOAT32)
    levels = np.abs(sent.max()) * oracle_levels.LEVELS[CODE_BITS[codec]]
    distances = np.abs(np.abs(gradient[1:, None]).astype(np.float64) - levels)
    np.testing.assert_array_equal(np.abs(message.residual[1:]), distances.min(axis=1))


@each_target
@each_codec
def test_a_block_whose_levels_would_be_subnormal_sends_nothing(
    forced: Library, codec: Levels
) -> None:
    largest = np.float32(2.0**-118) / oracle_levels.SCALE_FACTOR[CODE_BITS[codec]]
    gradient = np.full(128, np.float32(0.99) * largest, np.float32)
    message = encode(forced, codec, gradient, np.zeros(128, np.float32))
    assert not message.codes.any()
    assert not message.scales.any()
    assert_same_bits(message.residual, gradient)


@each_target
@each_codec
def test_only_the_elements_that_are_not_finite_are_marked(forced: Library, codec: Levels) -> None:
    rng = np.random.default_rng(1)
    gradient, residual = rng.standard_normal((2, 300)).astype(np.float32)
    gradient[[5, 200]] = np.nan, -np.inf
    message = encode(forced, codec, gradient, residual)
    not_finite = 1 << (CODE_BITS[codec] - 1)  # minus zero
    codes = oracle_levels.unpack(message.codes, 300, CODE_BITS[codec])
    assert np.flatnonzero(codes == not_finite).tolist() == [5, 200]
    sent = decode_sum(forced, codec, [message], 300, FLOAT32)
    assert np.flatnonzero(np.isnan(sent)).tolist() == [5, 200]
    assert_same_bits(message.residual[[5, 200]], residual[[5, 200]])
