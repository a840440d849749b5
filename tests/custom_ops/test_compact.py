"""Every implementation of the compact wire gives the oracle's bytes, and nothing is lost."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bits import assert_same_bits
from tests.custom_ops.cases import Array, encode, zeros
from tests.custom_ops.compact_cases import (
    SEGMENT,
    SEGMENTS_OFFSET,
    Wire,
    field_of,
    is_packed,
    pack,
    searched,
    unpack,
    with_scales,
)
from tests.custom_ops.native import BLOCK_SIZE, Codec, EightBit, Levels, Library, OneBit
from tests.oracles import compact as oracle

# One block or less: never packed. Of zeros at least 4, 7, 9, 13, and 14 or 16 are, by codec.
FEW_BLOCKS = [0, 1, 3, 4, 6, 7, 8, 9, 12, 13, 14, 15, 16, 63, 65]
DENSITIES = [0.0, 0.001, 0.03, 0.3, 0.7, 0.97, 1.0]


# ---- Lossless, and the same bytes everywhere ---------------------------------------


@pytest.mark.parametrize("blocks", FEW_BLOCKS)
def test_few_blocks(wire: Wire, blocks: int) -> None:
    for density in (0.0, 0.02, 0.4):
        message = wire.random(blocks, density)
        for periods in ([], [1]):
            wire.check(message, periods)


@pytest.mark.parametrize("density", DENSITIES)
def test_densities(wire: Wire, density: float) -> None:
    wire.check(wire.random(100, density), [3])


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_whole_segments_and_a_block_more_or_less(wire: Wire, extra: int) -> None:
    for segments in (1, 2):
        assert is_packed(wire.check(wire.random(segments * SEGMENT + extra, 0.2)))


def test_segments_that_cannot_be_coded_are_sent_as_they_are(wire: Wire) -> None:
    codes = wire.codes(5 * SEGMENT + 40, 0.1)
    scales = wire.scales(codes)
    by_segment = codes[: 5 * SEGMENT * wire.block_bytes].reshape(5, -1)
    # An element that is not finite: minus zero, of two bits a code of its own.
    magnitudes, signs = np.zeros((2, BLOCK_SIZE), np.uint8)
    signs[77] = 1
    by_segment[1, -wire.block_bytes :] = wire.form.codes(magnitudes, signs)
    by_segment[3] = wire.rng.integers(0, 256, by_segment.shape[1])
    if scales.size:
        scales[SEGMENT - 1] |= 0x8000
    compact = wire.check(wire.message(codes, scales))
    coded = np.array(field_of(compact, "words")) > 0
    assert coded.tolist() == [not scales.size, False, True, False, True, True]


@with_scales
def test_of_an_empty_block_nothing_is_sent(wire: Wire) -> None:
    blocks = SEGMENT + 40
    codes = wire.codes(blocks, 0.1).reshape(blocks, -1)
    empty = wire.rng.random(blocks) < 0.4
    codes[empty] = 0
    scales = wire.scales(codes)
    compact = wire.check(wire.message(codes, scales))
    filled = [np.count_nonzero(~part) for part in np.split(empty, [SEGMENT])]
    assert field_of(compact, "filled") == filled
    first = np.arange(blocks) < SEGMENT
    # A bit for each block, which says whether it is empty.
    with_empty, without = (
        wire.packed(wire.message(codes[chosen], scales[chosen]))
        for chosen in (first, first & ~empty)
    )
    assert without.size < with_empty.size < without.size + SEGMENT / 8 + 32


@with_scales
@pytest.mark.parametrize("scale", [0, 1, 0x00FF])
def test_a_segment_with_a_block_that_only_looks_empty_is_sent_as_it_is(
    wire: Wire, scale: int
) -> None:
    blocks = 2 * SEGMENT
    codes = wire.codes(blocks, 0.1)
    scales = wire.scales(codes)
    scales[77] = scale
    if scale:
        codes.reshape(blocks, -1)[77] = 0
    compact = wire.check(wire.message(codes, scales))
    assert (np.array(field_of(compact, "words")) > 0).tolist() == [False, True]


def test_what_does_not_get_smaller_is_sent_as_it_is(wire: Wire) -> None:
    blocks = SEGMENT + 100
    codes = wire.rng.integers(0, 256, blocks * wire.block_bytes, np.uint8)
    scales = wire.rng.integers(0, 1 << 16, blocks if wire.form.scaled else 0, np.uint16)
    message = wire.message(codes, scales)
    assert_same_bits(wire.check(message), message)


@given(data=st.data())
@searched
def test_any_codes_and_scales(wire: Wire, data: st.DataObject) -> None:
    wire.rng = rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    blocks = data.draw(st.integers(1, 300))  # with short periods they are paired
    periods = data.draw(st.lists(st.integers(1, 9) | st.integers(1, SEGMENT), max_size=4))
    kind = data.draw(st.integers(0, 2))
    if kind == 0:
        codes = wire.codes(blocks, data.draw(st.sampled_from(DENSITIES)))
    elif kind == 1 and periods:
        codes = wire.codes_by_column(blocks, data.draw(st.sampled_from(periods)))
    else:
        codes = wire.codes_by_half(blocks)
    # Whole blocks of nothing, at the end too, and of nothing but the largest code.
    for value in (0x00, 0xFF):
        start, end = sorted(data.draw(st.lists(st.integers(0, blocks), min_size=2, max_size=2)))
        codes[start * wire.block_bytes : end * wire.block_bytes] = value
    scales = wire.scales(codes)
    if scales.size and data.draw(st.booleans()):
        scales = rng.integers(0, 1 << 15, blocks, np.uint16)  # all that are not below zero
    # Codes of not finite elements, scales below zero.
    if data.draw(st.integers(0, 9)) == 0:
        codes[data.draw(st.integers(0, codes.size - 1))] = data.draw(st.integers(0, 255))
    if scales.size and data.draw(st.integers(0, 9)) == 0:
        scales[data.draw(st.integers(0, blocks - 1))] |= 0x8000
    wire.check(wire.message(codes, scales), periods)


# ---- Threads -----------------------------------------------------------------------


def backwards(tasks: int, task: Callable[[int], None]) -> None:
    for i in reversed(range(tasks)):
        task(i)


def in_threads(tasks: int, task: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(task, np.random.default_rng(6).permutation(tasks).tolist()))


def test_the_order_of_tasks_changes_nothing(wire: Wire) -> None:
    blocks = 5 * SEGMENT + 3
    codes = wire.codes(blocks, 0.15)
    of_columns = wire.codes_by_column(2 * SEGMENT, 12)
    codes[-of_columns.size :] = of_columns
    message = wire.message(codes)
    for library in wire.on_each_target():
        compact = pack(library, wire.codec, message, periods=[7, 12])
        for run in (backwards, in_threads):
            assert_same_bits(pack(library, wire.codec, message, run, [7, 12]), compact)
            assert_same_bits(unpack(library, wire.codec, blocks, compact, run), message)


# ---- Codecs and arguments ----------------------------------------------------------


def test_messages_of_other_codecs_are_not_packed(library: Library) -> None:
    none = np.zeros(16, np.uint8)
    counts = [3, 4, 5]
    for codec in [-1, 0, 11, 255, 256 + int(Codec.AUTO), *counts, *map(int, OneBit)]:
        assert library.pack_capacity(codec, 1) == 0
        assert library.pack(codec, 0, none, none) == 0
        assert not library.unpack(codec, 0, none, none)


def test_there_are_no_messages_of_so_many_blocks(wire: Wire, library: Library) -> None:
    assert library.pack_capacity(wire.codec, 1 << 54) > 0
    for blocks in (-1, (1 << 54) + 1, -(1 << 63), (1 << 63) - 1):
        assert library.pack_capacity(wire.codec, blocks) == 0


def test_periods_that_no_segment_has_are_refused(wire: Wire, library: Library) -> None:
    message = wire.random(100, 0.1)
    out = np.zeros(library.pack_capacity(wire.codec, 100), np.uint8)
    for periods in ([0], [-1], [4097], [3, 4, 5, 1 << 30], [3, -(1 << 31)], [1, 2, 3, 4, 5]):
        assert library.pack(wire.codec, 100, message, out, None, periods) == 0
        assert not out.any()
    for periods in ([4096], [1, 1, 1, 1], [1, 2, 4096, 3]):
        assert library.pack(wire.codec, 100, message, out, None, periods) > 0


# ---- Size --------------------------------------------------------------------------


def entropy(values: Array) -> float:
    """Bits of all values, by how often each one occurs."""
    _, counts = np.unique(values, return_counts=True)
    return float(-(counts * np.log2(counts / values.size)).sum())


# How far a message may be above the entropy of its codes and scales, and above the entropy of its
# planes and the high bytes of its scales, as a part of it. Measured on these gradients, where
# columns are no more alike than halves of blocks: 2.4%, 2.4%, 4.2% and 2.4%, and 1.8%, 2.1%, 1.0%
# and 1.3%.
EXCESS = dict(zip([Codec.AUTO, *Levels, EightBit.AUTO], [0.025, 0.025, 0.043, 0.025], strict=True))
OF_PLANES = dict(zip(EXCESS, [0.019, 0.022, 0.011, 0.013], strict=True))


@with_scales
def test_a_message_is_nearly_as_short_as_its_entropy(wire: Wire, library: Library) -> None:
    blocks = 8 * SEGMENT
    gradient = np.random.default_rng(11).laplace(size=blocks * BLOCK_SIZE).astype(np.float32)
    message = encode(library, wire.codec, gradient, zeros(gradient.size))
    codes, scales = message.codes, message.scales
    bits = 8 * pack(library, wire.codec, wire.message(codes, scales), periods=[5]).size
    magnitudes, signs = wire.form.numbers(codes)
    least = entropy(2 * magnitudes + signs) + entropy(scales)
    assert least < bits < (1 + EXCESS[wire.codec]) * least
    # The rest are kinds, states of the coder, and what the chances that there are do not fit.
    planes = oracle.planes_of(wire.form, magnitudes, signs)
    of_planes = sum(entropy(ones[sent]) for sent, ones in planes)
    least = of_planes + entropy(scales >> 8) + 8 * blocks
    assert bits < (1 + OF_PLANES[wire.codec]) * least


def test_a_block_of_zeros_takes_little(wire: Wire, library: Library) -> None:
    blocks = 8 * SEGMENT
    message = wire.message(np.zeros(blocks * wire.block_bytes, np.uint8))
    # The states of the coder take 0.25 bits. Measured: 0.254, with the end of the message.
    headers = SEGMENTS_OFFSET + (16 + 8 * wire.planes) * 8
    assert pack(library, wire.codec, message).size - headers < blocks * 0.26 / 8
