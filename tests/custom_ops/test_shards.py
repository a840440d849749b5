"""Every implementation of the sums of shards gives the oracle's bits."""

import itertools
from typing import Any

import numpy as np
import pytest

from tests.bits import assert_same_bits
from tests.custom_ops import cases, native
from tests.custom_ops.native import AnyCodec, Codec, Library, OneBit
from tests.oracles import one_bit as oracle_one_bit
from tests.oracles import two_bit as oracle

SIZES = [0, 1, 127, 128, 129, 16 * 128, 16 * 128 + 1, 7919]
# Around the ends of the widths, and around 127 messages, of which a byte holds the sum.
REPLICAS = [1, 2, 3, 7, 8, 9, 127, 128, 130, 255]

each_fixed = pytest.mark.parametrize("codec", cases.FIXED, ids=["two_bit", "one_bit"])
each_sum = pytest.mark.parametrize(
    ("codec", "sum_codec"), cases.SUMS, ids=lambda codec: f"{type(codec).__name__}.{codec.name}"
)


def decode_counts(
    library: Library,
    counts: cases.Array,
    bits: int,
    size: int,
    dtype: np.dtype[Any],
    threshold: float = cases.THRESHOLD,
    shift: int = 0,
) -> cases.Array:
    result = cases.Guarded(size, dtype, shift)
    assert library.decode_counts(counts, bits, result.array, threshold)
    return result.check()


def random_messages(
    rng: np.random.Generator, codec: AnyCodec, replicas: int, blocks: int
) -> list[cases.Message]:
    """Random codes, of which few are "not finite", and some agree on every replica."""
    codes = rng.choice(np.array([0, 2, 3], np.uint8), (replicas, blocks * native.BLOCK_SIZE))
    codes[:, ::5], codes[:, 1::5] = oracle.PLUS, oracle.MINUS
    if codec == OneBit.FIXED:
        bad = rng.random((replicas, blocks)) < 0.3 / replicas
        scales = np.where(bad, oracle_one_bit.NAN, oracle_one_bit.ONE).astype(np.uint16)
        packed = np.packbits(codes == oracle.PLUS, axis=1)
        return [cases.Message(*row, cases.zeros(0)) for row in zip(packed, scales, strict=True)]
    codes[rng.random(codes.shape) < 0.1 / replicas] = oracle.NOT_FINITE
    return [
        cases.Message(oracle.pack(row), np.zeros(0, np.uint16), cases.zeros(0)) for row in codes
    ]


# ---- Automatic scales --------------------------------------------------------------


@each_sum
@cases.each_dtype
def test_reencoding_equals_the_oracle(
    parity: cases.Parity, codec: AnyCodec, sum_codec: AnyCodec, dtype: np.dtype[Any]
) -> None:
    for size in SIZES:
        rng = np.random.default_rng(size)
        encoded = [
            cases.oracle_encode(codec, *cases.random_pair(rng, size, dtype)) for _ in range(5)
        ]
        hostile = cases.hostile_messages(rng, codec, 4, size)
        gradient, residual = cases.random_pair(rng, size, dtype)
        for others in ([], encoded[:1], encoded[:2], encoded, hostile[:1], hostile):
            options = [*itertools.product((True, False), (0, 1))]
            parity.reencode(codec, others, gradient, residual, sum_codec, options)


def test_sums_by_other_codecs_are_refused(library: Library) -> None:
    everything = [*cases.AUTOMATIC, *cases.FIXED]
    codes, scales = np.zeros(0, np.uint8), np.zeros(0, np.uint16)
    values = [cases.zeros(0)] * 3
    taken = [
        pair
        for pair in itertools.product(everything, everything)
        if library.reencode(*pair, [codes], [scales], *values, codes, scales)
    ]
    assert sorted(taken) == sorted(cases.SUMS)


# ---- Counts ------------------------------------------------------------------------


@each_fixed
@cases.each_dtype
@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.parametrize("wider", [False, True])
def test_counts_equal_the_oracle_and_the_sum_of_the_messages(
    parity: cases.Parity, codec: AnyCodec, dtype: np.dtype[Any], replicas: int, wider: bool
) -> None:
    bits = 16 if wider else oracle.count_bits(replicas)
    unit = 0.3 if codec == Codec.FIXED else 1.0
    rng = np.random.default_rng(replicas)
    for blocks in (1, 2, 37):
        messages = random_messages(rng, codec, replicas, blocks)
        counts = parity.count(codec, messages, bits, shifts=(0, 1, 3))
        for size in (blocks * 128, blocks * 128 - 127):
            expected = parity.decode_sum(codec, messages, size, dtype, 0.3)
            for library in parity.on_each_target():
                for shift in (0, 1):
                    actual = decode_counts(library, counts, bits, size, dtype, unit, shift)
                    assert_same_bits(actual, expected)


@cases.each_dtype
@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("threshold", [0.5, 0.3, 2.0**-126, 1e-40, 3.0e36])
def test_every_count_decodes_as_the_oracle_says(
    on_each_target: cases.Targets, dtype: np.dtype[Any], bits: int, threshold: float
) -> None:
    counts = np.arange(65_536, dtype=np.uint16).view(np.uint8)
    size = counts.size * 8 // bits - 5
    expected = oracle.decode_counts(counts, bits, size, threshold, dtype)
    for library in on_each_target():
        actual = decode_counts(library, counts, bits, size, dtype, threshold)
        assert_same_bits(actual, expected)


@pytest.mark.parametrize("value", [oracle.PLUS, oracle.MINUS, oracle.NOT_FINITE])
@pytest.mark.parametrize("replicas", [7, 127, 32767])
def test_the_largest_counts_of_a_width_fit(
    on_each_target: cases.Targets, replicas: int, value: int
) -> None:
    bits = oracle.count_bits(replicas)
    message = cases.Message(
        oracle.pack(np.full(native.BLOCK_SIZE, value)), cases.zeros(0), cases.zeros(0)
    )
    expected = {oracle.PLUS: replicas, oracle.MINUS: -replicas, oracle.NOT_FINITE: np.nan}[value]
    for library in on_each_target():
        counts = cases.count(library, Codec.FIXED, [message] * replicas, bits)
        decoded = decode_counts(library, counts, bits, 128, cases.FLOAT32, 1.0)
        np.testing.assert_array_equal(decoded, np.full(128, expected, np.float32))


@pytest.mark.parametrize("bits", [0, 2, 5, 32])
def test_counts_of_another_width_are_refused(library: Library, bits: int) -> None:
    codes, out = np.zeros(32, np.uint8), np.zeros(512, np.uint8)
    assert not library.count(Codec.FIXED, [codes], [codes], bits, out)
    assert not library.decode_counts(out, bits, np.zeros(128, np.float32), 1.0)


def test_the_bytes_of_a_block_are_the_codes_and_the_scale_or_the_counts(library: Library) -> None:
    def sizes(codec: int) -> list[int]:
        replicas = [-1, 0, 1, 2, 7, 8, 127, 128, 32767, 32768]
        return [library.call("block_bytes", codec, n) for n in replicas]

    for fixed, size in ((Codec.FIXED, 32), (OneBit.FIXED, 18)):
        assert sizes(fixed) == [0, 0, size, 64, 64, 128, 128, 256, 256, 0]
    for codec, size in zip(cases.AUTOMATIC, (18, 34, 50, 66, 130), strict=True):
        assert sizes(codec) == [0, 0] + [size] * 8
    assert sizes(3) == [0] * 10
