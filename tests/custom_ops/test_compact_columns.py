"""Runs of the compact wire: halves of blocks, or columns of matrices."""

from __future__ import annotations

import numpy as np
import pytest

from tests.custom_ops import native
from tests.custom_ops.cases import Array, assert_same_bits
from tests.custom_ops.compact_cases import (
    FILLED,
    PAIRED,
    PERIOD,
    Rng,
    Targets,
    assert_unpacked,
    check_message,
    codes_by_column,
    codes_by_half,
    codes_of,
    codes_of_planes,
    each_codec,
    field_of,
    is_packed,
    kind_counts,
    message_of,
    periods_of,
    random_message,
    scales_of,
    segment_headers,
    with_scales,
)
from tests.custom_ops.native import BLOCK_SIZE, AnyCodec, Library
from tests.oracles import compact as oracle_compact

SEGMENT = oracle_compact.SEGMENT_BLOCKS


def message_by_column(rng: Rng, codec: AnyCodec, blocks: int, period: int) -> Array:
    codes = codes_by_column(rng, codec, blocks, period)
    return message_of(codec, codes, scales_of(rng, codec, codes))


# ---- Which period a segment has ----------------------------------------------------


@each_codec
@pytest.mark.parametrize("period", [1, 3, 16, 25, 64])
def test_a_segment_has_the_period_of_its_rows(
    on_each_target: Targets, codec: AnyCodec, period: int
) -> None:
    rng = np.random.default_rng(period)
    message = message_by_column(rng, codec, max(1000, 64 * period), period)
    halves = check_message(on_each_target, codec, message)
    assert periods_of(halves) == [0]
    # With rows of one block, columns are alike whatever the period.
    others = [[SEGMENT, period, 7], [7, 2, 1000, period]] if period > 1 else []
    for candidates in ([period], *others):
        compact = check_message(on_each_target, codec, message, candidates)
        assert periods_of(compact) == [period]
        assert compact.size < 0.9 * halves.size


@each_codec
def test_each_segment_has_its_own_period(on_each_target: Targets, codec: AnyCodec) -> None:
    rng = np.random.default_rng(1)
    parts = [
        codes_by_column(rng, codec, SEGMENT, 3),
        codes_by_half(rng, codec, SEGMENT),
        codes_by_column(rng, codec, SEGMENT, 16),
        codes_by_column(rng, codec, 300, 3),
    ]
    codes = np.concatenate(parts)
    message = message_of(codec, codes, scales_of(rng, codec, codes))
    compact = check_message(on_each_target, codec, message, [16, 3])
    assert periods_of(compact) == [3, 0, 16, 3]


@each_codec
def test_no_period_is_chosen_where_columns_are_not_alike(
    on_each_target: Targets, codec: AnyCodec
) -> None:
    rng = np.random.default_rng(2)
    codes = codes_by_half(rng, codec, SEGMENT + 200)
    message = message_of(codec, codes, scales_of(rng, codec, codes))
    compact = check_message(on_each_target, codec, message, [1, 3, 16, SEGMENT])
    assert is_packed(compact)
    assert periods_of(compact) == [0, 0]
    assert_same_bits(compact, check_message(on_each_target, codec, message))


@each_codec
def test_of_equal_periods_the_first_one_is_chosen(on_each_target: Targets, codec: AnyCodec) -> None:
    rng = np.random.default_rng(3)
    # The blocks are in their order with each of these.
    message = message_by_column(rng, codec, 130, 1)
    for candidates in ([1, SEGMENT, 130], [SEGMENT, 1, 130], [130, 1]):
        compact = check_message(on_each_target, codec, message, candidates)
        assert periods_of(compact) == candidates[:1]


@each_codec
def test_the_tiles_that_are_sampled_decide(on_each_target: Targets, codec: AnyCodec) -> None:
    rng = np.random.default_rng(4)

    def tile(alike: bool) -> Array:
        """Of columns that are alike, or of halves of blocks."""
        return codes_by_column(rng, codec, 64, 1) if alike else codes_by_half(rng, codec, 64)

    for sampled_are_alike in (False, True):
        tiles = [tile((i % 4 == 0) == sampled_are_alike) for i in range(16)]
        codes = np.concatenate(tiles)
        message = message_of(codec, codes, scales_of(rng, codec, codes))
        compact = check_message(on_each_target, codec, message, [1])
        assert periods_of(compact) == [int(sampled_are_alike)]


@each_codec
@pytest.mark.parametrize(
    "blocks", [20, 63, 64, 65, 127, 128, 129, 191, 192, 255, 257, SEGMENT - 1, SEGMENT + 20]
)
def test_tiles_that_are_not_full(on_each_target: Targets, codec: AnyCodec, blocks: int) -> None:
    rng = np.random.default_rng(blocks)
    message = message_by_column(rng, codec, blocks, 1)
    compact = check_message(on_each_target, codec, message, [1])
    # Without a tile nothing speaks for a period.
    expected = [int(count >= 64) for count in oracle_compact.segments_of(blocks)]
    assert not is_packed(compact) or periods_of(compact) == expected
    paired = [int(count >= 128) for count in oracle_compact.segments_of(blocks)]
    assert not is_packed(compact) or field_of(compact, PAIRED) == paired
    assert is_packed(compact) or blocks < 64


@each_codec
def test_periods_that_no_segment_has_are_refused(library: Library, codec: AnyCodec) -> None:
    message = random_message(np.random.default_rng(5), codec, 100, 0.1)
    out = np.zeros(library.pack_capacity(codec, 100), np.uint8)
    for periods in ([0], [-1], [4097], [3, 4, 5, 1 << 30], [3, -(1 << 31)], [1, 2, 3, 4, 5]):
        assert library.pack(codec, 100, message, out, None, periods) == 0
        assert not out.any()
    for periods in ([4096], [1, 1, 1, 1], [1, 2, 4096, 3]):
        assert library.pack(codec, 100, message, out, None, periods) > 0


# ---- Pairs -------------------------------------------------------------------------


@each_codec
@pytest.mark.parametrize("period", [1, 2, 3, 15, 16])
def test_runs_are_paired_if_pairs_are_of_one_column(
    on_each_target: Targets, codec: AnyCodec, period: int
) -> None:
    rng = np.random.default_rng(period)
    for blocks in (128 * period - 1, 128 * period, min(SEGMENT, 128 * period + 70)):
        message = message_by_column(rng, codec, blocks, period)
        compact = check_message(on_each_target, codec, message, [period])
        assert periods_of(compact) == [period]
        assert field_of(compact, PAIRED) == [int(blocks >= 128 * period)]


@each_codec
def test_each_segment_has_its_own_pairs(
    on_each_target: Targets, codec: AnyCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(9)
    periods = [32, 33, 3]
    parts = [codes_by_column(rng, codec, SEGMENT, period) for period in periods]
    codes = np.concatenate([*parts, codes_by_half(rng, codec, SEGMENT)])
    message = message_of(codec, codes, scales_of(rng, codec, codes))
    compact = check_message(on_each_target, codec, message, periods)
    assert periods_of(compact) == [*periods, 0]
    assert field_of(compact, PAIRED) == [1, 0, 1, 0]
    monkeypatch.setattr(oracle_compact, "is_paired", lambda *_: False)
    assert compact.size < oracle_compact.pack(int(codec), message, periods).size


@with_scales
def test_rows_are_sorted_by_their_scales(on_each_target: Targets, codec: AnyCodec) -> None:
    rng = np.random.default_rng(12)
    rows = SEGMENT // 2
    of_rows = rng.choice([0.1, 1], rows)[:, None, None]
    of_columns = rng.choice([0.05, 0.9], (2, BLOCK_SIZE))
    planes = np.zeros((oracle_compact.Format.of(codec).planes, SEGMENT * BLOCK_SIZE))
    planes[0] = (rng.random((rows, 2, BLOCK_SIZE)) < of_rows * of_columns).reshape(-1)
    codes = codes_of_planes(rng, codec, planes)
    # Of 256 numbers each, so that some rows have the same scale.
    scales = np.where(of_rows.reshape(-1) < 1, 0x3C00, 0x3B00) + rng.integers(0, 256, (2, rows))
    of_blocks = scales.T.reshape(-1).astype(np.uint16)
    compact = check_message(on_each_target, codec, message_of(codec, codes, of_blocks), [2])
    assert periods_of(compact) == [2]
    mixed_up = message_of(codec, codes, rng.permutation(of_blocks))
    assert compact.size < 0.9 * check_message(on_each_target, codec, mixed_up, [2]).size


@each_codec
def test_a_pair_has_one_kind(on_each_target: Targets, codec: AnyCodec) -> None:
    rng = np.random.default_rng(10)
    bits = np.ones((oracle_compact.Format.of(codec).planes, 128, BLOCK_SIZE))
    # In every other column all codes are zero. In the others so many signs are 1 of the first 64.
    bits[0, :, ::2] = 0
    for ones, counts in (
        (0, [255, 0, 0, 0, 0, 0, 0, 0]),
        (17, [255, 0, 255, 0, 0, 0, 0, 0]),  # few of 128, and some of 64
        (46, [255, 0, 0, 0, 255, 0, 0, 0]),  # some of 128
        (47, [255, 0, 0, 0, 0, 0, 255, 0]),
        (64, [255, 0, 0, 0, 0, 0, 255, 0]),  # half of 128, and all of 64
    ):
        bits[1] = 0
        bits[1, :64] = rng.permuted(np.arange(64)[:, None].repeat(BLOCK_SIZE, 1), axis=0) < ones
        codes = codes_of_planes(rng, codec, bits.reshape(len(bits), -1))
        message = message_of(codec, codes, scales_of(rng, codec, codes))
        compact = check_message(on_each_target, codec, message, [1])
        assert field_of(compact, PAIRED) == [1]
        of_map, of_signs, *_ = kind_counts(codec, compact).tolist()
        assert of_map == [255, 255, 0, 0, 0, 0, 0, 0]
        assert of_signs == counts


# ---- Empty blocks ------------------------------------------------------------------


def with_empty(rng: Rng, codec: AnyCodec, codes: Array, share: float) -> tuple[Array, Array]:
    """The message in which such a part of the blocks is empty, and which ones are not."""
    by_block = codes.reshape(-1, native.code_bytes(codec)).copy()
    by_block[rng.random(len(by_block)) < share] = 0
    scales = scales_of(rng, codec, by_block.reshape(-1))
    return message_of(codec, by_block.reshape(-1), scales), scales > 0


@with_scales
@pytest.mark.parametrize("share", [0.1, 0.9, 1])
def test_empty_blocks_are_in_runs_if_there_is_a_period(
    on_each_target: Targets, codec: AnyCodec, share: float
) -> None:
    rng = np.random.default_rng(6)
    codes = codes_by_column(rng, codec, SEGMENT + 100, 5)
    message, filled = with_empty(rng, codec, codes, share)
    compact = check_message(on_each_target, codec, message, [5])
    headers = segment_headers(compact, 2)
    parts = np.split(filled, [SEGMENT])
    assert headers[FILLED].tolist() == [np.count_nonzero(part) for part in parts]
    assert headers[PERIOD].tolist() == ([5, 5] if share < 1 else [0, 0])


@with_scales
@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_a_segment_may_have_a_period_and_any_number_of_empty_blocks(
    on_each_target: Targets, codec: AnyCodec, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)
    codes = codes_of(rng, codec, 300, 0.05)
    message, _ = with_empty(rng, codec, codes, share)
    monkeypatch.setattr(oracle_compact, "best_period", lambda *_: 6)
    compact = oracle_compact.pack(int(codec), message)
    assert periods_of(compact) == [6]
    assert_unpacked(on_each_target, codec, compact, message)


@with_scales
def test_the_codes_of_an_empty_block_of_a_segment_with_a_period_may_be_any(
    on_each_target: Targets, codec: AnyCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(8)
    codes = codes_of(rng, codec, 100, 0.05)
    scales = scales_of(rng, codec, codes)
    scales[::3] = 0
    message = message_of(codec, codes, scales)
    monkeypatch.setattr(oracle_compact, "best_period", lambda *_: 1)
    monkeypatch.setattr(oracle_compact, "has_symbols", lambda *_: True)
    assert_unpacked(on_each_target, codec, oracle_compact.pack(int(codec), message, [1]), message)


# ---- Other packers ------------------------------------------------------------------


@each_codec
@pytest.mark.parametrize("period", [1, 2, 63, 64, 65, 500, 4095, 4096])
@pytest.mark.parametrize("paired", [0, 1])
def test_other_packers_may_choose_any_period(
    on_each_target: Targets,
    codec: AnyCodec,
    period: int,
    paired: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(period)
    monkeypatch.setattr(oracle_compact, "best_period", lambda *_: period)
    monkeypatch.setattr(oracle_compact, "is_paired", lambda *_: paired)
    for blocks in (20, 63, 64, 65, 127, 128, 200, *([SEGMENT + 20] if period > 64 else [])):
        message = random_message(rng, codec, blocks, 0.02)
        compact = oracle_compact.pack(int(codec), message)
        assert set(periods_of(compact)) == {period}
        assert set(field_of(compact, PAIRED)) == {paired}
        assert_unpacked(on_each_target, codec, compact, message)
