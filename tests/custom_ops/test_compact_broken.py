"""Bytes that are no message of the compact wire are refused, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.custom_ops import native
from tests.custom_ops.cases import Array, assert_same_bits
from tests.custom_ops.compact_cases import (
    FILLED,
    MIXED,
    PAIRED,
    PERIOD,
    SEGMENTS_OFFSET,
    WORDS,
    Targets,
    assert_refused,
    choose_all_mixed,
    codes_by_column,
    codes_by_half,
    codes_of,
    codes_of_planes,
    counts_of_kinds,
    each_codec,
    is_packed,
    kind_counts,
    message_of,
    only,
    pack,
    periods_of,
    random_message,
    scales_of,
    searched,
    segment_headers,
    unpack,
    unpack_on_each,
)
from tests.custom_ops.native import BLOCK_SIZE, COMPACTIBLE, AnyCodec, Library
from tests.oracles import compact as oracle_compact
from tests.oracles.rans import KINDS

SEGMENT = oracle_compact.SEGMENT_BLOCKS


@each_codec
def test_zeros_may_follow_a_message(library: Library, codec: AnyCodec) -> None:
    rng = np.random.default_rng(8)
    for density in (0.1, 1.0):
        message = random_message(rng, codec, 100, density)
        longer = np.pad(pack(library, codec, message), (0, 4096))
        unpacked = unpack(library, codec, 100, longer)
        assert unpacked is not None
        assert_same_bits(unpacked, message)


@each_codec
@pytest.mark.parametrize("density", [0.1, 1.0])
def test_a_message_that_was_cut_short_is_refused(
    library: Library, codec: AnyCodec, density: float
) -> None:
    compact = pack(library, codec, random_message(np.random.default_rng(9), codec, 60, density))
    for size in range(compact.size):
        assert unpack(library, codec, 60, compact[:size]) is None


@each_codec
def test_a_message_of_another_bucket_or_codec_is_refused(library: Library, codec: AnyCodec) -> None:
    compact = pack(library, codec, random_message(np.random.default_rng(10), codec, 64, 0.1))
    assert is_packed(compact)
    for blocks in (0, 1, 63, 65, 64 + (1 << 32)):
        layout = oracle_compact.Format.of(codec).message_bytes(blocks)
        if layout < 1 << 20:
            assert unpack(library, codec, blocks, compact) is None
    for other in COMPACTIBLE:
        assert (unpack(library, other, 64, compact) is None) == (other != codec)


@each_codec
def test_a_packed_message_that_is_not_shorter_is_refused(library: Library, codec: AnyCodec) -> None:
    rng = np.random.default_rng(12)
    for blocks in (0, 1, 60):
        message = random_message(rng, codec, blocks, 0.1)
        form = oracle_compact.Format.of(codec)
        head = message[:16].copy()
        head[:2] = np.array([oracle_compact.COMPACT_MAGIC], np.uint16).view(np.uint8)
        table = np.full(128, 32, np.uint16).view(np.uint8)
        # The segment as it is, which the format has, but not in a message that is not shorter.
        body = [
            np.zeros(16 if blocks else 0, np.uint8),
            message[16 : 16 + form.plain_bytes(blocks)],
        ]
        compact = np.concatenate([head, table, *body, np.zeros(16, np.uint8)])
        with pytest.raises(oracle_compact.BrokenError, match="not shorter"):
            oracle_compact.unpack(int(codec), blocks, compact)
        assert unpack(library, codec, blocks, compact) is None


def packed_columns(codec: AnyCodec, period: int = 2) -> tuple[Array, Array]:
    """A message of one segment with a period, and its packed form. With period 1 it is paired."""
    rng = np.random.default_rng(17)
    codes = codes_by_column(rng, codec, 150, period)
    message = message_of(codec, codes, scales_of(rng, codec, codes))
    compact = oracle_compact.pack(int(codec), message, [period])
    assert periods_of(compact) == [period]
    return message, compact.copy()


@each_codec
@pytest.mark.parametrize("runs", ["halves", "columns", "pairs"])
def test_other_numbers_in_the_header_of_a_segment_are_refused(
    on_each_target: Targets, codec: AnyCodec, runs: str
) -> None:
    message, compact = packed_columns(codec, 1 if runs == "pairs" else 2)
    if runs == "halves":
        compact = oracle_compact.pack(int(codec), message)
    words, mixed, filled, period, paired = segment_headers(compact, 1)[0].item()
    assert words > 64
    assert mixed > 1
    assert filled == 150
    assert (period, paired) == {"columns": (2, 0), "pairs": (1, 1)}.get(runs, (0, 0))
    longest = (1 << 32) - 1
    changes = {
        WORDS: [0, 1, 63, 64, words - 1, words + 1, words + 4, 1 << 31, longest],
        MIXED: [0, mixed - 1, mixed + 1, mixed + 2, 40961, 1 << 29, 1 << 31, longest],
        FILLED: [0, 149, 151, 4096, 1 << 31, longest],
        PERIOD: [4097, 1 << 15, (1 << 16) - 1],
        PAIRED: [*([] if period else [1]), 2, 256, (1 << 16) - 1],
    }
    for field, values in changes.items():
        for value in values:
            changed = np.pad(compact, (0, 64))  # so that nothing is missing
            header = segment_headers(changed, 1)
            if header[field][0] == value:
                continue  # the words of nothing that is coded
            header[field] = value
            assert_refused(on_each_target, codec, 150, changed)


@each_codec
def test_without_a_period_nothing_is_paired(
    on_each_target: Targets, codec: AnyCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if all bits are mixed, so that nothing else speaks against it."""
    choose_all_mixed(monkeypatch)
    message = random_message(np.random.default_rng(24), codec, 150, 0.1)
    compact = oracle_compact.pack(int(codec), message).copy()
    segment_headers(compact, 1)[PAIRED] = 1
    assert_refused(on_each_target, codec, 150, compact)
    segment_headers(compact, 1)[PERIOD] = 1
    result = unpack_on_each(on_each_target, codec, 150, compact)
    assert result is not None
    assert_same_bits(result, oracle_compact.unpack(int(codec), 150, compact))


@each_codec
def test_a_segment_that_is_not_coded_has_no_other_numbers(
    on_each_target: Targets, codec: AnyCodec
) -> None:
    rng = np.random.default_rng(18)
    codes = codes_of(rng, codec, SEGMENT + 20, 0.02)
    codes[-native.code_bytes(codec) * 20 :] = rng.integers(0, 256, native.code_bytes(codec) * 20)
    message = message_of(codec, codes, scales_of(rng, codec, codes))
    compact = oracle_compact.pack(int(codec), message)
    assert segment_headers(compact, 2)[1].item() == (0, 0, 0, 0, 0)
    assert unpack_on_each(on_each_target, codec, SEGMENT + 20, compact) is not None
    for field in (MIXED, FILLED, PERIOD, PAIRED):
        for value in (1, 20):
            changed = compact.copy()
            segment_headers(changed, 2)[field][1] = value
            assert_refused(on_each_target, codec, SEGMENT + 20, changed)


@each_codec
def test_with_another_period_the_blocks_are_others(
    on_each_target: Targets, codec: AnyCodec
) -> None:
    message, compact = packed_columns(codec)
    for period in (1, 3, 149, 4096):
        segment_headers(compact, 1)[PERIOD] = period
        other = oracle_compact.unpack(int(codec), 150, compact)
        assert (other != message).any()
        result = unpack_on_each(on_each_target, codec, 150, compact)
        assert result is not None
        assert_same_bits(result, other)


@each_codec
def test_counts_matter_in_proportion(on_each_target: Targets, codec: AnyCodec) -> None:
    rng = np.random.default_rng(19)
    # All bits of a run are 0 or all are 1, of equally many runs.
    planes = oracle_compact.Format.of(codec).planes
    chances = np.ones((planes, 200))
    chances[:2] = np.resize([0, 1], 200), np.resize([0, 0, 0, 1], 200)
    codes = codes_of_planes(rng, codec, chances.repeat(BLOCK_SIZE // 2, axis=1))
    message = message_of(codec, codes, scales_of(rng, codec, codes))
    compact = oracle_compact.pack(int(codec), message, [3]).copy()
    of_plane = kind_counts(codec, compact)[0]
    assert of_plane.tolist() == [255, 255, 0, 0, 0, 0, 0, 0]
    of_plane[:2] = 1
    result = unpack_on_each(on_each_target, codec, 100, compact)
    assert result is not None
    assert_same_bits(result, message)
    for other in ([2, 1, 0], [1, 2, 0], [1, 1, 1]):
        of_plane[:3] = other
        assert_refused(on_each_target, codec, 100, compact)


@each_codec
def test_rows_of_kinds_that_the_counts_do_not_ask_for_are_refused(
    on_each_target: Targets, codec: AnyCodec
) -> None:
    """And those that are missing."""
    rng = np.random.default_rng(20)
    codes = codes_by_half(rng, codec, 100)
    message = message_of(codec, codes, scales_of(rng, codec, codes))
    compact = oracle_compact.pack(int(codec), message, [3]).copy()
    for of_plane in kind_counts(codec, compact):
        before = of_plane.copy()
        assert np.count_nonzero(before) > 2
        for kept in range(KINDS):
            of_plane[:] = 0
            of_plane[kept] = before[kept]
            assert_refused(on_each_target, codec, 100, compact)
        of_plane[:] = before

    chances = np.ones((oracle_compact.Format.of(codec).planes, 100 * BLOCK_SIZE))
    chances[0] = 0.2
    codes = codes_of_planes(rng, codec, chances)
    message = message_of(codec, codes, scales_of(rng, codec, codes))
    compact = oracle_compact.pack(int(codec), message).copy()
    of_plane = kind_counts(codec, compact)[1]
    assert of_plane.tolist() == only(1)
    for other in set(range(KINDS)) - {1}:
        of_plane[other] = 1
        assert_refused(on_each_target, codec, 100, compact)
        of_plane[other] = 0


@each_codec
def test_an_only_kind_that_does_not_fit_the_bits_is_refused(
    on_each_target: Targets, codec: AnyCodec
) -> None:
    rng = np.random.default_rng(21)
    chances = np.ones((oracle_compact.Format.of(codec).planes, 100 * BLOCK_SIZE))
    chances[0] = 0.2
    codes = codes_of_planes(rng, codec, chances)
    message = message_of(codec, codes, scales_of(rng, codec, codes))
    compact = oracle_compact.pack(int(codec), message).copy()
    of_signs = kind_counts(codec, compact)[1]
    for kind in range(KINDS):
        of_signs[:] = only(kind)
        if kind in (0, 1):  # What is inverted fits as well.
            expected = oracle_compact.unpack(int(codec), 100, compact)
            assert (kind == 1) == np.array_equal(expected, message)
            result = unpack_on_each(on_each_target, codec, 100, compact)
            assert result is not None
            assert_same_bits(result, expected)
        else:
            assert_refused(on_each_target, codec, 100, compact)


HOSTILE = [0, 1, 2, 63, 64, 0xFFFF, 1 << 31, 0xFFFFFFFF]


@each_codec
@given(data=st.data())
@searched
def test_changed_messages_are_refused_or_are_what_the_oracle_says(
    on_each_target: Targets, codec: AnyCodec, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    kind = data.draw(st.sampled_from(["sparse", "dense", "columns"]))
    blocks = 140 if kind == "columns" else 40  # 140 are paired
    if kind == "columns":
        codes = codes_by_column(rng, codec, blocks, 1)
    else:
        codes = codes_of(rng, codec, blocks, {"sparse": 0.02, "dense": 0.2}[kind])
    message = message_of(codec, codes, scales_of(rng, codec, codes))
    periods = data.draw(st.sampled_from([[], [1]]))
    compact = oracle_compact.pack(int(codec), message, periods).copy()
    assert is_packed(compact)
    what = data.draw(st.sampled_from(["header", "counts", "bits"]))
    if what == "header":  # a field of the segment's header
        fields = [WORDS, MIXED, FILLED, PERIOD, PAIRED]
        values = segment_headers(compact, 1)[data.draw(st.sampled_from(fields))]
        near = int(values[0]) + data.draw(st.integers(-2, 2))
        value = data.draw(st.sampled_from([near, *HOSTILE]))
        values[0] = value % (1 << 8 * values.itemsize)
    elif what == "counts":
        counts = kind_counts(codec, compact)
        of_plane = counts[data.draw(st.integers(0, len(counts) - 1))]
        if data.draw(st.booleans()):  # all of one kind, or of several as before
            of_plane[:] = 0
        of_plane[data.draw(st.integers(0, KINDS - 1))] = data.draw(st.integers(0, 255))
    else:
        at = counts_of_kinds(codec, compact)
        parts = [(0, 16), (16, SEGMENTS_OFFSET), (SEGMENTS_OFFSET + 16, at.start)]
        start, end = data.draw(st.sampled_from([*parts, (at.start, compact.size)]))
        compact[data.draw(st.integers(start, end - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        expected = oracle_compact.unpack(int(codec), blocks, compact)
    except oracle_compact.BrokenError:
        expected = None
    result = unpack_on_each(on_each_target, codec, blocks, compact)
    assert (result is None) == (expected is None)
    if result is not None and expected is not None:
        assert_same_bits(result, expected)
