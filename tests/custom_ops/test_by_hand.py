"""The rules of the codecs, by numbers that were worked out by hand."""

import numpy as np
import pytest

from tests.bits import assert_same_bits
from tests.custom_ops.cases import THRESHOLD, Parity, zeros
from tests.custom_ops.native import CODE_BITS, NAMES, Codec, EightBit, Levels, OneBit
from tests.oracles import levels as oracle_levels

each_codec = pytest.mark.parametrize("codec", list(Levels), ids=NAMES.get)


def test_plus_minus_zero_plus_is_0xe3(parity: Parity) -> None:
    gradient = np.array([THRESHOLD, -THRESHOLD, 0, THRESHOLD], np.float32)
    message = parity.encode(Codec.FIXED, gradient, zeros(4))
    assert message.codes.tobytes() == bytes([0xE3]) + bytes(31)
    np.testing.assert_array_equal(message.residual, np.zeros(4))


# ---- One bit -------------------------------------------------------------------------


def test_two_steps_of_mxnets_rule(parity: Parity) -> None:
    """1 where p > threshold, which keeps p - 1; else 0, which keeps p + 1."""
    first = np.array([0.75, 0.5, 0.25, -2, 0, 3, -0.5, 0.5000001, 9, -9], np.float32)
    kept = np.array([-0.25, 1.5, 1.25, -1, 1, 2, 0.5, np.float32(0.5000001) - 1, 8, -8], "f")
    last = kept - np.array([-1, 1, 1, -1, 1, 1, -1, -1, 1, -1], np.float32)
    sent = [1, -1, -1, -1, -1, 1, -1, 1, 1, -1]
    message = parity.encode(OneBit.FIXED, first, zeros(10), 0.5)
    assert message.codes.tobytes() == bytes([0b10000101, 0b10000000]) + bytes(14)
    assert message.scales.tolist() == [0x3F80]  # 1 as bfloat16
    assert_same_bits(message.residual, kept)
    total = parity.decode_sum(OneBit.FIXED, [message], 10)
    np.testing.assert_array_equal(total, sent)
    message = parity.encode(OneBit.FIXED, zeros(10), kept, 0.5)
    assert message.codes.tobytes() == bytes([0b01101100, 0b10000000]) + bytes(14)
    assert_same_bits(message.residual, last)


@pytest.mark.parametrize("threshold", [-3.0, 0.0, -0.0, 1e-40, 7.5])
def test_any_finite_number_is_a_threshold_of_one_bit(parity: Parity, threshold: float) -> None:
    near = np.float32(threshold)
    values = [near, np.nextafter(near, np.float32(9)), np.nextafter(near, np.float32(-9))]
    gradient = np.resize(np.array(values, np.float32), 300)
    plus = np.unpackbits(parity.encode(OneBit.FIXED, gradient, zeros(300), threshold).codes)
    np.testing.assert_array_equal(plus[:300], np.resize([0, 1, 0], 300))


def test_a_block_of_one_bit_sends_its_signs_and_its_mean_magnitude(parity: Parity) -> None:
    gradient = np.resize(np.array([1, -2, 3, -0.0, 0, -6], np.float32), 132)
    signs = np.resize([1, -1, 1, 1, 1, -1], 132)
    message = parity.encode(OneBit.AUTO, gradient, zeros(132))
    # 21 times the sum of six, 12, and 1 + 2 make 255 / 128; 3, 0, 0 and 6 make 9 / 4.
    assert message.scales.tolist() == [0x3FFF, 0x4010]
    sent = parity.decode_sum(OneBit.AUTO, [message], 132)
    np.testing.assert_array_equal(sent[:128], signs[:128] * (255 / 128))
    np.testing.assert_array_equal(sent[128:], signs[128:] * 2.25)
    np.testing.assert_array_equal(message.residual, gradient - sent)
    # The padding of the last block is 0: 1 1 1 0 and nothing else.
    assert message.codes[16:].tobytes() == bytes([0b11100000]) + bytes(15)


# ---- Several levels ------------------------------------------------------------------


def test_a_block_of_three_bits(parity: Parity) -> None:
    """The largest is 64, and so is the scale: levels of 10, 32 and 64."""
    gradient = np.array([64, -56, 48, -47.75, 21, 20.75, -5, 4.75, 0, -0.0], np.float32)
    sent = np.array([64, -64, 64, -32, 32, 10, -10, 0, 0, 0], np.float32)
    # Numbers of the levels 3 3 3 2 2 1 1 0 0 0; negative are elements 1, 3 and 6.
    low, high, minus = 0b01100111, 0b00011111, 0b01001010
    planes = b"".join(bytes([bits]) + bytes(15) for bits in (low, high, minus))
    message = parity.encode(Levels.THREE_BIT, gradient, zeros(10))
    assert message.scales.tolist() == [0x4280]
    assert message.codes.tobytes() == planes
    np.testing.assert_array_equal(parity.decode_sum(Levels.THREE_BIT, [message], 10), sent)
    np.testing.assert_array_equal(message.residual, gradient - sent)


def test_a_block_of_four_bits(parity: Parity) -> None:
    """The largest is 72, so the scale is 64: levels of 2, 8, 16, 24, 32, 48 and 64."""
    gradient = np.array([72, 56, 55, -40, 39, 20, -19, 12, 5, 4, -1, 0.875], np.float32)
    sent = [64, 64, 48, -48, 32, 24, -16, 16, 8, 2, -2, 0]
    message = parity.encode(Levels.FOUR_BIT, gradient, zeros(12))
    assert message.scales.tolist() == [0x4280]
    np.testing.assert_array_equal(parity.decode_sum(Levels.FOUR_BIT, [message], 12), sent)
    numbers = oracle_levels.unpack(message.codes, 12, 4)
    assert numbers.tolist() == [7, 7, 6, 8 | 6, 5, 4, 8 | 3, 3, 2, 1, 8 | 1, 0]


@each_codec
@pytest.mark.parametrize("exponent", [-118, -117, -60, 0, 60, 118])
@pytest.mark.parametrize("mantissa", [1.0, 1.0078125, 1.5, 1.9921875])
def test_the_nearest_level_is_sent(
    parity: Parity, codec: Levels, exponent: int, mantissa: float
) -> None:
    """Half way between two levels, with neighbours and both signs, after the largest."""
    scale, levels = mantissa * 2.0**exponent, oracle_levels.LEVELS[CODE_BITS[codec]]
    middle = (scale * (levels[1:] + levels[:-1]) / 2).astype(np.float32)
    near = [middle, *(np.nextafter(middle, np.float32(to)) for to in (0, np.inf))]
    largest = np.float32(scale) / oracle_levels.SCALE_FACTOR[CODE_BITS[codec]]
    gradient = np.concatenate([[largest], *near, *(-x for x in near)]).astype(np.float32)
    message = parity.encode(codec, gradient, zeros(gradient.size))
    sent = parity.decode_sum(codec, [message], gradient.size)
    distances = np.abs(gradient[1:, None]).astype(np.float64) - np.abs(sent.max()) * levels
    least = np.abs(distances).min(axis=1)
    np.testing.assert_array_equal(np.abs(message.residual[1:]), least)


@each_codec
def test_a_block_whose_levels_would_be_subnormal_sends_nothing(
    parity: Parity, codec: Levels
) -> None:
    largest = np.float32(2.0**-118) / oracle_levels.SCALE_FACTOR[CODE_BITS[codec]]
    gradient = np.full(128, np.float32(0.99) * largest, np.float32)
    message = parity.encode(codec, gradient, zeros(128))
    assert not message.codes.any()
    assert not message.scales.any()
    assert_same_bits(message.residual, gradient)


# ---- Eight bits ----------------------------------------------------------------------


def test_a_block_of_eight_bits(parity: Parity) -> None:
    """The largest is 254, so the scale is 2. Half of it is rounded to even."""
    gradient = np.array([254, -254, 1, -1, 3, 2.5, 0.875, -0.0, np.nan, -2], np.float32)
    sent = np.array([254, -254, 0, 0, 4, 2, 0, 0, np.nan, -2], np.float32)
    residual = np.full(10, 0.0, np.float32)
    message = parity.encode(EightBit.AUTO, gradient, residual)
    assert message.scales.tolist() == [0x4000]
    assert message.codes.view(np.int8)[:10].tolist() == [127, -127, 0, 0, 2, 1, 0, 0, -128, -1]
    assert not message.codes[10:].any()
    np.testing.assert_array_equal(parity.decode_sum(EightBit.AUTO, [message], 10), sent)
    np.testing.assert_array_equal(message.residual, np.where(np.isnan(sent), 0, gradient - sent))


@pytest.mark.parametrize("exponent", [-119, -60, 0, 60, 119])
def test_eight_bits_are_off_by_at_most_a_253rd_of_the_largest(
    parity: Parity, exponent: int
) -> None:
    """With scales that bfloat16 rounds by as much as it can, up and down."""
    rng = np.random.default_rng(exponent + 119)
    scales = (1 + (np.arange(128) + rng.choice([0.5, 0.499, 0.501], 128)) / 128) * 127 / 128
    largest = (scales * 2.0**exponent).astype(np.float32)[:, None]
    gradient = (rng.uniform(-1, 1, (128, 128)).astype(np.float32) * largest).astype(np.float32)
    gradient[:, :1] = largest
    message = parity.encode(EightBit.AUTO, gradient.reshape(-1), zeros(gradient.size))
    sent = parity.decode_sum(EightBit.AUTO, [message], gradient.size).reshape(128, 128)
    error = np.abs(sent.astype(np.float64) - gradient).max(axis=1) / largest[:, 0]
    assert 1 / 254 < error.max() <= 1 / 253
    assert (np.abs(message.codes.view(np.int8)[::128]) >= 126).all()


def test_a_block_whose_scale_would_be_subnormal_sends_nothing(parity: Parity) -> None:
    gradient = np.full(128, np.float32(126.9 * 2.0**-126), np.float32)
    message = parity.encode(EightBit.AUTO, gradient, zeros(128))
    assert not message.codes.any()
    assert not message.scales.any()
    assert_same_bits(message.residual, gradient)
