"""Every implementation of the compact wire gives the oracle's bytes, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.custom_ops import native
from tests.custom_ops.cases import Array, assert_same_bits
from tests.custom_ops.compact_cases import (
    FILLED,
    PAIRED,
    SEGMENTS_OFFSET,
    WORDS,
    Rng,
    Targets,
    blocks_of,
    check_message,
    codes_by_column,
    codes_by_half,
    codes_of,
    each_codec,
    field_of,
    is_packed,
    message_of,
    pack,
    periods_of,
    random_message,
    scales_of,
    searched,
    segment_headers,
    unpack,
    with_scales,
)
from tests.custom_ops.native import (
    BLOCK_SIZE,
    CODE_BITS,
    AnyCodec,
    Codec,
    Levels,
    Library,
    OneBit,
)
from tests.oracles import compact as oracle_compact
from tests.oracles import levels as oracle_levels
from tests.oracles import two_bit as oracle

GOLDEN = Path(__file__).parents[1] / "golden" / "compact_golden.npz"
SEGMENT = oracle_compact.SEGMENT_BLOCKS
# One block or less: never packed. Of zeros at least 7, 9, 13, and 14 or 16 are, by codec.
FEW_BLOCKS = [0, 1, 6, 7, 8, 9, 12, 13, 14, 15, 16, 63, 65]
DENSITIES = [0.0, 0.001, 0.03, 0.3, 0.7, 0.97, 1.0]


# ---- Lossless, and the same bytes everywhere ---------------------------------------


@each_codec
@pytest.mark.parametrize("blocks", FEW_BLOCKS)
def test_few_blocks(on_each_target: Targets, codec: AnyCodec, blocks: int) -> None:
    rng = np.random.default_rng(blocks)
    for density in (0.0, 0.02, 0.4):
        message = random_message(rng, codec, blocks, density)
        for periods in ([], [1]):
            check_message(on_each_target, codec, message, periods)


@each_codec
@pytest.mark.parametrize("density", DENSITIES)
def test_densities(on_each_target: Targets, codec: AnyCodec, density: float) -> None:
    rng = np.random.default_rng(1)
    check_message(on_each_target, codec, random_message(rng, codec, 100, density), [3])


@each_codec
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_whole_segments_and_a_block_more_or_less(
    on_each_target: Targets, codec: AnyCodec, extra: int
) -> None:
    rng = np.random.default_rng(2)
    for segments in (1, 2):
        message = random_message(rng, codec, segments * SEGMENT + extra, 0.2)
        assert is_packed(check_message(on_each_target, codec, message))


@each_codec
def test_segments_that_cannot_be_coded_are_sent_as_they_are(
    on_each_target: Targets, codec: AnyCodec
) -> None:
    rng = np.random.default_rng(3)
    blocks = 5 * SEGMENT + 40
    codes = codes_of(rng, codec, blocks, 0.1)
    scales = scales_of(rng, codec, codes)
    by_segment = codes[: 5 * SEGMENT * native.code_bytes(codec)].reshape(5, -1)
    bits = CODE_BITS[codec]
    # An element that is not finite: minus zero, of two bits a code of its own.
    one = np.zeros(BLOCK_SIZE, np.uint8)
    one[77] = 0b01 if bits == 2 else 1 << (bits - 1)
    block = oracle.pack(one) if bits == 2 else oracle_levels.pack(one, bits)
    by_segment[1, -block.size :] = block
    by_segment[3] = rng.integers(0, 256, by_segment.shape[1])
    if scales.size:
        scales[SEGMENT - 1] |= 0x8000
    message = message_of(codec, codes, scales)
    compact = check_message(on_each_target, codec, message)
    assert is_packed(compact)
    coded = segment_headers(compact, 6)[WORDS] > 0
    assert coded.tolist() == [not scales.size, False, True, False, True, True]


@with_scales
def test_of_an_empty_block_nothing_is_sent(
    on_each_target: Targets, library: Library, codec: AnyCodec
) -> None:
    rng = np.random.default_rng(13)
    blocks = SEGMENT + 40
    codes = codes_of(rng, codec, blocks, 0.1)
    empty = rng.random(blocks) < 0.4
    codes.reshape(blocks, -1)[empty] = 0
    scales = scales_of(rng, codec, codes)
    compact = check_message(on_each_target, codec, message_of(codec, codes, scales))
    filled = segment_headers(compact, 2)[FILLED]
    assert filled.tolist() == [np.count_nonzero(~part) for part in np.split(empty, [SEGMENT])]

    def packed(chosen: Array) -> Array:
        of_chosen = codes.reshape(blocks, -1)[chosen].reshape(-1)
        return pack(library, codec, message_of(codec, of_chosen, scales[chosen]))

    first = np.arange(blocks) < SEGMENT
    # A bit for each block, which says whether it is empty.
    with_empty, without = packed(first), packed(first & ~empty)
    assert without.size < with_empty.size < without.size + SEGMENT / 8 + 32


@with_scales
@pytest.mark.parametrize("scale", [0, 1, 0x00FF])
def test_a_segment_with_a_block_that_only_looks_empty_is_sent_as_it_is(
    on_each_target: Targets, codec: AnyCodec, scale: int
) -> None:
    rng = np.random.default_rng(14)
    blocks = 2 * SEGMENT
    codes = codes_of(rng, codec, blocks, 0.1)
    scales = scales_of(rng, codec, codes)
    scales[77] = scale
    if scale:
        codes.reshape(blocks, -1)[77] = 0
    compact = check_message(on_each_target, codec, message_of(codec, codes, scales))
    assert (segment_headers(compact, 2)[WORDS] > 0).tolist() == [False, True]


@each_codec
def test_what_does_not_get_smaller_is_sent_as_it_is(
    on_each_target: Targets, codec: AnyCodec
) -> None:
    rng = np.random.default_rng(4)
    blocks = SEGMENT + 100
    codes = rng.integers(0, 256, blocks * native.code_bytes(codec), np.uint8)
    scales = rng.integers(0, 1 << 16, blocks if native.has_scales(codec) else 0, np.uint16)
    message = message_of(codec, codes, scales)
    assert_same_bits(check_message(on_each_target, codec, message), message)


@each_codec
@given(data=st.data())
@searched
def test_any_codes_and_scales(
    on_each_target: Targets, codec: AnyCodec, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    blocks = data.draw(st.integers(1, 300))  # with short periods they are paired
    periods = data.draw(st.lists(st.integers(1, 9) | st.integers(1, SEGMENT), max_size=4))
    kind = data.draw(st.integers(0, 2))
    if kind == 0:
        codes = codes_of(rng, codec, blocks, data.draw(st.sampled_from(DENSITIES)))
    elif kind == 1 and periods:
        codes = codes_by_column(rng, codec, blocks, data.draw(st.sampled_from(periods)))
    else:
        codes = codes_by_half(rng, codec, blocks)
    # Whole blocks of nothing, at the end too, and of nothing but the largest code.
    for value in (0x00, 0xFF):
        start, end = sorted(data.draw(st.lists(st.integers(0, blocks), min_size=2, max_size=2)))
        codes[start * native.code_bytes(codec) : end * native.code_bytes(codec)] = value
    scales = scales_of(rng, codec, codes)
    if scales.size and data.draw(st.booleans()):
        scales = rng.integers(0, 1 << 15, blocks, np.uint16)  # all that are not below zero
    # Codes of not finite elements, scales below zero.
    if data.draw(st.integers(0, 9)) == 0:
        codes[data.draw(st.integers(0, codes.size - 1))] = data.draw(st.integers(0, 255))
    if scales.size and data.draw(st.integers(0, 9)) == 0:
        scales[data.draw(st.integers(0, blocks - 1))] |= 0x8000
    check_message(on_each_target, codec, message_of(codec, codes, scales), periods)


def gradient_like(rng: Rng, size: int) -> Array:
    """Heavy tails, a size that differs from row to row, and rows of nothing."""
    rows = 2.0 ** rng.normal(-6, 2, -(-size // 1000)).repeat(1000)[:size]
    rows *= rng.random(rows.size // 500 + 1).repeat(500)[:size] < 0.8
    return (rng.standard_t(3, size) * rows).astype(np.float32)


@each_codec
def test_messages_of_the_encoder(on_each_target: Targets, codec: AnyCodec) -> None:
    rng = np.random.default_rng(5)
    size = (SEGMENT + 300) * BLOCK_SIZE - 5
    residual = np.zeros(size, np.float32)
    codes = np.zeros(native.num_blocks(size) * native.code_bytes(codec), np.uint8)
    scales = np.zeros(native.num_blocks(size) if native.has_scales(codec) else 0, np.uint16)
    gradient = gradient_like(rng, size)
    for library in on_each_target():
        residual[:] = 0
        for step in range(3):
            noisy = (gradient * (1 + 0.1 * step)).astype(np.float32)
            library.encode(codec, noisy, residual, residual, codes, scales, 0.02)
    assert is_packed(check_message(on_each_target, codec, message_of(codec, codes, scales), [8]))


@each_codec
@pytest.mark.parametrize("name", ["columns", "pairs"])
def test_the_oracle_and_the_library_give_the_golden_bytes(
    on_each_target: Targets, codec: AnyCodec, name: str
) -> None:
    with np.load(GOLDEN) as file:
        parts = ("message", "periods", "compact")
        message, periods, compact = (file[f"{int(codec)}/{name}/{part}"] for part in parts)
    assert is_packed(compact)
    assert any(periods_of(compact))
    assert any(field_of(compact, PAIRED)) == (name == "pairs")
    assert_same_bits(check_message(on_each_target, codec, message, periods.tolist()), compact)


# ---- Threads -----------------------------------------------------------------------


def backwards(tasks: int, task: Callable[[int], None]) -> None:
    for i in reversed(range(tasks)):
        task(i)


def in_threads(tasks: int, task: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(task, np.random.default_rng(6).permutation(tasks).tolist()))


@each_codec
def test_the_order_of_tasks_changes_nothing(on_each_target: Targets, codec: AnyCodec) -> None:
    rng = np.random.default_rng(7)
    blocks = 5 * SEGMENT + 3
    codes = codes_of(rng, codec, blocks, 0.15)
    of_columns = codes_by_column(rng, codec, 2 * SEGMENT, 12)
    codes[-of_columns.size :] = of_columns
    message = message_of(codec, codes, scales_of(rng, codec, codes))
    for library in on_each_target():
        compact = pack(library, codec, message, periods=[7, 12])
        for run in (backwards, in_threads):
            assert_same_bits(pack(library, codec, message, run, [7, 12]), compact)
            unpacked = unpack(library, codec, blocks_of(message), compact, run)
            assert unpacked is not None
            assert_same_bits(unpacked, message)


# ---- Codecs ------------------------------------------------------------------------


def test_messages_of_other_codecs_are_not_packed(library: Library) -> None:
    none = np.zeros(16, np.uint8)
    counts = [3, 4, 5]
    for codec in [-1, 0, 10, 255, 256 + int(Codec.AUTO), *counts, *map(int, OneBit)]:
        assert library.pack_capacity(codec, 1) == 0
        assert library.pack(codec, 0, none, none) == 0
        assert not library.unpack(codec, 0, none, none)


@each_codec
def test_there_are_no_messages_of_so_many_blocks(library: Library, codec: AnyCodec) -> None:
    assert library.pack_capacity(codec, 1 << 54) > 0
    for blocks in (-1, (1 << 54) + 1, -(1 << 63), (1 << 63) - 1):
        assert library.pack_capacity(codec, blocks) == 0


# ---- Size --------------------------------------------------------------------------


def entropy(values: Array) -> float:
    """Bits of all values, by how often each one occurs."""
    _, counts = np.unique(values, return_counts=True)
    return float(-(counts * np.log2(counts / values.size)).sum())


# What a message may have above the entropy of its codes and scales, and above the entropy of its
# planes and the high bytes of its scales, as a part of it. Measured on these gradients, where
# columns are no more alike than halves of blocks: 2.4%, 2.4% and 4.2%, and 1.8%, 2.1% and 1.0%.
EXCESS = {Codec.AUTO: 0.025, Levels.THREE_BIT: 0.025, Levels.FOUR_BIT: 0.043}
OF_PLANES = {Codec.AUTO: 0.019, Levels.THREE_BIT: 0.022, Levels.FOUR_BIT: 0.011}


@pytest.mark.parametrize("codec", list(EXCESS), ids=["two_bit", "three_bit", "four_bit"])
def test_a_message_is_nearly_as_short_as_its_entropy(library: Library, codec: AnyCodec) -> None:
    blocks = 8 * SEGMENT
    gradient = np.random.default_rng(11).laplace(size=blocks * BLOCK_SIZE).astype(np.float32)
    codes = np.zeros(blocks * native.code_bytes(codec), np.uint8)
    scales = np.zeros(blocks, np.uint16)
    residual = np.zeros(gradient.size, np.float32)
    library.encode(codec, gradient, residual, residual, codes, scales)
    bits = 8 * pack(library, codec, message_of(codec, codes, scales), periods=[5]).size

    form = oracle_compact.Format.of(codec)
    magnitudes, signs = form.numbers(codes)
    least = entropy(2 * magnitudes + signs) + entropy(scales)
    assert least < bits < (1 + EXCESS[codec]) * least

    # The rest are kinds, states of the coder, and what the chances that there are do not fit.
    planes = oracle_compact.planes_of(form, magnitudes, signs)
    of_planes = sum(entropy(bits[sent]) for sent, bits in planes)
    least = of_planes + entropy(scales >> 8) + 8 * blocks
    assert bits < (1 + OF_PLANES[codec]) * least


@each_codec
def test_a_block_of_zeros_takes_little(library: Library, codec: AnyCodec) -> None:
    blocks = 8 * SEGMENT
    codes = np.zeros(blocks * native.code_bytes(codec), np.uint8)
    message = message_of(codec, codes, scales_of(np.random.default_rng(15), codec, codes))
    # The states of the coder take 0.25 bits. Measured: 0.254, with the end of the message.
    headers = SEGMENTS_OFFSET + (16 + 8 * oracle_compact.Format.of(codec).planes) * 8
    assert pack(library, codec, message).size - headers < blocks * 0.26 / 8
