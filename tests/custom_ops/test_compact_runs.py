"""Runs of the compact wire (halves of blocks, columns of matrices), and the kinds of their bits."""

import itertools
from typing import Any

import numpy as np
import pytest

from tests.bits import assert_same_bits
from tests.custom_ops.cases import Array
from tests.custom_ops.compact_cases import (
    CHANCES,
    MIXED_KIND,
    SEGMENT,
    Wire,
    choose_all_mixed,
    choose_period,
    field_of,
    is_packed,
    only,
    with_scales,
)
from tests.custom_ops.native import BLOCK_SIZE
from tests.oracles import compact as oracle
from tests.oracles import runs as oracle_runs
from tests.oracles.rans import KINDS

# For each kind that the packer chooses: after how many bits one differs from the others.
STEPS = {0: 0, 1: 0, 2: 16, 3: 16, 4: 4, 5: 4, 6: 2}


# ---- Which period a segment has ----------------------------------------------------


@pytest.mark.parametrize("period", [1, 3, 16, 25, 64])
def test_a_segment_has_the_period_of_its_rows(wire: Wire, period: int) -> None:
    message = wire.by_column(max(1000, 64 * period), period)
    halves = wire.check(message)
    assert field_of(halves, "period") == [0]
    # With rows of one block, columns are alike whatever the period.
    others = [[SEGMENT, period, 7], [7, 2, 1000, period]] if period > 1 else []
    for candidates in ([period], *others):
        compact = wire.check(message, candidates)
        assert field_of(compact, "period") == [period]
        assert compact.size < 0.9 * halves.size


def test_each_segment_has_its_own_period_and_pairs(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    periods = [32, 33, 3]
    parts = [wire.codes_by_column(SEGMENT, period) for period in periods]
    parts += [wire.codes_by_half(SEGMENT), wire.codes_by_column(300, 3)]
    message = wire.message(np.concatenate(parts))
    compact = wire.check(message, periods)
    assert field_of(compact, "period") == [*periods, 0, 3]
    assert field_of(compact, "paired") == [1, 0, 1, 0, 0]
    monkeypatch.setattr(oracle, "is_paired", lambda *_: False)
    assert compact.size < wire.packed(message, periods).size


def test_no_period_is_chosen_where_columns_are_not_alike(wire: Wire) -> None:
    message = wire.message(wire.codes_by_half(SEGMENT + 200))
    compact = wire.check(message, [1, 3, 16, SEGMENT])
    assert is_packed(compact)
    assert field_of(compact, "period") == [0, 0]
    assert_same_bits(compact, wire.check(message))


def test_of_equal_periods_the_first_one_is_chosen(wire: Wire) -> None:
    message = wire.by_column(130, 1)  # The blocks are in their order with each of these.
    for candidates in ([1, SEGMENT, 130], [SEGMENT, 1, 130], [130, 1]):
        assert field_of(wire.check(message, candidates), "period") == candidates[:1]


@pytest.mark.parametrize("sampled_are_alike", [False, True])
def test_the_tiles_that_are_sampled_decide(wire: Wire, sampled_are_alike: bool) -> None:
    tiles = [
        wire.codes_by_column(64, 1) if (i % 4 == 0) == sampled_are_alike else wire.codes_by_half(64)
        for i in range(16)
    ]
    compact = wire.check(wire.message(np.concatenate(tiles)), [1])
    assert field_of(compact, "period") == [int(sampled_are_alike)]


@pytest.mark.parametrize(
    "blocks", [20, 63, 64, 65, 127, 128, 129, 191, 192, 255, 257, SEGMENT - 1, SEGMENT + 20]
)
def test_tiles_that_are_not_full(wire: Wire, blocks: int) -> None:
    compact = wire.check(wire.by_column(blocks, 1), [1])
    assert is_packed(compact) or blocks < 64
    if is_packed(compact):
        segments = oracle.segments_of(blocks)
        # Without a tile nothing speaks for a period.
        assert field_of(compact, "period") == [int(count >= 64) for count in segments]
        assert field_of(compact, "paired") == [int(count >= 128) for count in segments]


@pytest.mark.parametrize("period", [2, 3, 15, 16])
def test_runs_are_paired_if_pairs_are_of_one_column(wire: Wire, period: int) -> None:
    for blocks in (128 * period - 1, 128 * period, min(SEGMENT, 128 * period + 70)):
        compact = wire.check(wire.by_column(blocks, period), [period])
        assert field_of(compact, "period") == [period]
        assert field_of(compact, "paired") == [int(blocks >= 128 * period)]


@with_scales
def test_rows_are_sorted_by_their_scales(wire: Wire) -> None:
    rng, rows = wire.rng, SEGMENT // 2
    of_rows = rng.choice([0.1, 1], rows)[:, None, None]
    of_columns = rng.choice([0.05, 0.9], (2, BLOCK_SIZE))
    planes = np.zeros((wire.planes, rows, 2, BLOCK_SIZE))
    planes[0] = rng.random((rows, 2, BLOCK_SIZE)) < of_rows * of_columns
    codes = wire.codes_of_planes(planes)
    # Of 256 numbers each, so that some rows have the same scale.
    scales = np.where(of_rows.reshape(-1) < 1, 0x3C00, 0x3B00) + rng.integers(0, 256, (2, rows))
    of_blocks = scales.T.reshape(-1).astype(np.uint16)
    compact = wire.check(wire.message(codes, of_blocks), [2])
    assert field_of(compact, "period") == [2]
    mixed_up = wire.check(wire.message(codes, rng.permutation(of_blocks)), [2])
    assert compact.size < 0.9 * mixed_up.size


# ---- Empty blocks ------------------------------------------------------------------


def with_empty(wire: Wire, codes: Array, share: float) -> tuple[Array, Array]:
    """The message in which such a part of the blocks is empty, and which ones are not."""
    by_block = codes.reshape(-1, wire.block_bytes)
    by_block[wire.rng.random(len(by_block)) < share] = 0
    scales = wire.scales(by_block)
    return wire.message(by_block, scales), scales > 0


@with_scales
@pytest.mark.parametrize("share", [0.1, 0.9, 1])
def test_empty_blocks_are_in_runs_if_there_is_a_period(wire: Wire, share: float) -> None:
    message, filled = with_empty(wire, wire.codes_by_column(SEGMENT + 100, 5), share)
    compact = wire.check(message, [5])
    counts = [np.count_nonzero(part) for part in np.split(filled, [SEGMENT])]
    assert field_of(compact, "filled") == counts
    assert field_of(compact, "period") == ([5, 5] if share < 1 else [0, 0])


# ---- Kinds -------------------------------------------------------------------------


@pytest.mark.parametrize("period", [0, 3])
def test_runs_are_of_each_kind(wire: Wire, period: int) -> None:
    blocks = SEGMENT - 50
    codes = wire.codes_by_column(blocks, 3) if period else wire.codes_by_half(blocks)
    compact = wire.check(wire.message(codes), [3])
    assert field_of(compact, "period") == [period]
    counts = wire.counts(compact)
    assert (counts[:, :-1] > 0).all()
    assert not counts[:, -1].any()  # Mixed bits are not inverted.
    assert (counts.max(axis=1) == 255).all()


def test_a_pair_has_one_kind(wire: Wire) -> None:
    bits = np.ones((wire.planes, 128, BLOCK_SIZE))
    # In every other column all codes are zero. In the others `ones` of the first 64 signs are 1.
    bits[0, :, ::2] = 0
    for ones, counts in (
        (0, [255, 0, 0, 0, 0, 0, 0, 0]),
        (17, [255, 0, 255, 0, 0, 0, 0, 0]),  # few of 128, and some of 64
        (46, [255, 0, 0, 0, 255, 0, 0, 0]),  # some of 128
        (47, [255, 0, 0, 0, 0, 0, 255, 0]),
        (64, [255, 0, 0, 0, 0, 0, 255, 0]),  # half of 128, and all of 64
    ):
        bits[1] = 0
        places = np.arange(64)[:, None].repeat(BLOCK_SIZE, 1)
        bits[1, :64] = wire.rng.permuted(places, axis=0) < ones
        compact = wire.check(wire.message(wire.codes_of_planes(bits)), [1])
        assert field_of(compact, "paired") == [1]
        of_map, of_signs, *_ = wire.counts(compact).tolist()
        assert of_map == [255, 255, 0, 0, 0, 0, 0, 0]
        assert of_signs == counts


def bits_of_kind(kind: int, blocks: int) -> Array:
    """[blocks, BLOCK_SIZE]: bits whose runs, halves of blocks or columns, are all of this kind."""
    step = STEPS[kind]
    if step == 0:
        return np.full((blocks, BLOCK_SIZE), kind == 1)
    few = (np.arange(blocks)[:, None] + np.arange(BLOCK_SIZE)) % step == 0
    return few ^ (kind % 2 == 1)


def test_all_runs_of_a_plane_are_of_one_kind(wire: Wire) -> None:
    blocks = 100
    for plane, kind in itertools.product(range(wire.planes), STEPS):
        bits = np.ones((wire.planes, blocks, BLOCK_SIZE))
        bits[plane] = bits_of_kind(kind, blocks)
        if wire.form.scaled:
            bits[0, ::2] = 0  # Blocks that are empty, so that it gets smaller.
        compact = wire.check(wire.message(wire.codes_of_planes(bits)), [3])
        assert is_packed(compact)
        assert field_of(compact, "period") == [0]
        if wire.form.scaled and plane == kind == 0:
            continue  # No block is left.
        assert wire.counts(compact)[plane].tolist() == only(kind)


# ---- What other packers may choose -------------------------------------------------


@pytest.mark.parametrize("period", [1, 2, 63, 64, 65, 500, 4095, 4096])
@pytest.mark.parametrize("paired", [0, 1])
def test_other_packers_may_choose_any_period(
    wire: Wire, period: int, paired: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_period(monkeypatch, period, paired)
    for blocks in (20, 63, 64, 65, 127, 128, 200, *([SEGMENT + 20] if period > 64 else [])):
        message = wire.random(blocks, 0.02)
        compact = wire.packed(message)
        assert set(field_of(compact, "period")) == {period}
        assert set(field_of(compact, "paired")) == {paired}
        wire.check_unpacked(compact, message)


@with_scales
def test_other_packers_may_choose_a_period_with_any_empty_blocks(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_period(monkeypatch, 6)
    for share in (0, 0.5, 1):
        message, _ = with_empty(wire, wire.codes(300, 0.05), share)
        compact = wire.packed(message)
        assert field_of(compact, "period") == [6]
        wire.check_unpacked(compact, message)
    # Their codes may be any.
    codes = wire.codes(100, 0.05)
    scales = wire.scales(codes)
    scales[::3] = 0
    message = wire.message(codes, scales)
    choose_period(monkeypatch, 1)
    monkeypatch.setattr(oracle, "has_symbols", lambda *_: True)
    wire.check_unpacked(wire.packed(message), message)


def test_other_packers_may_choose_other_kinds_and_counts(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, best = wire.rng, oracle_runs.kind_of

    def any_kind(ones: int, bits: int) -> int:
        if rng.random() < 0.9:
            return best(ones, bits)
        equal = [kind for kind, of_kind in enumerate((0, bits)) if ones == of_kind]
        return int(rng.choice([*equal, *range(2, KINDS)]))

    monkeypatch.setattr(oracle_runs, "kind_of", any_kind)
    for blocks, period in ((70, 0), (SEGMENT, 0), (300, 4), (300, 2), (300, SEGMENT)):
        choose_period(monkeypatch, period)
        for of_counts in (oracle_runs.counts_of, lambda kinds: rng.bytes(KINDS)):
            message = wire.random(blocks, 0.03)
            with monkeypatch.context() as patched:
                patched.setattr(oracle_runs, "counts_of", of_counts)
                compact = wire.packed(message)
            assert field_of(compact, "period") == [period]
            wire.check_unpacked(compact, message)


@pytest.mark.parametrize("kind", range(KINDS))
@pytest.mark.parametrize(("period", "paired"), [(0, 0), (3, 0), (3, 1)])
def test_other_packers_may_choose_any_only_kind(
    wire: Wire, kind: int, period: int, paired: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = oracle.kinds_of
    choose_period(monkeypatch, period, paired)
    for plane in range(wire.planes):
        chances = wire.rng.choice(CHANCES, (wire.planes, 300))
        # So few that a message gets smaller whatever its kinds are.
        chances[0] = wire.rng.choice([0.01, 0.03, 0.08], 300)
        if plane == 0 and kind in (3, 5):
            chances[0], chances[1:] = 0.95, 0.02
        if kind < 2:
            chances[plane] = kind
        message = wire.message(wire.codes_of_planes(chances.repeat(BLOCK_SIZE // 2, axis=1)))
        numbers = itertools.count()

        def choose(*of_plane: Any, chosen: int = plane, numbers: Any = numbers) -> Array:
            kinds = find(*of_plane)
            return np.full_like(kinds, kind) if next(numbers) == chosen else kinds

        with monkeypatch.context() as patched:
            patched.setattr(oracle, "kinds_of", choose)
            compact = wire.packed(message)
        counts = wire.counts(compact)[plane].tolist()
        # There may be no runs, if all of the blocks are empty.
        assert counts == only(kind) or (plane == kind == 0 and not any(counts))
        wire.check_unpacked(compact, message)


@pytest.mark.parametrize("period", [0, 3])
def test_another_count_of_an_only_kind_changes_nothing(
    wire: Wire, period: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_period(monkeypatch, period)
    for plane in range(wire.planes):
        chances = np.full((wire.planes, 100 * BLOCK_SIZE), 0.2)
        chances[plane] = 0
        message = wire.message(wire.codes_of_planes(chances))
        compact = wire.packed(message)
        counts = wire.counts(compact)
        for count in (255, 1, 0):  # counts that are all 0 are those of kind 0
            counts[plane] = only(0, count)
            wire.check_unpacked(compact, message)
    choose_all_mixed(monkeypatch)
    message = wire.random(100, 0.2)
    compact = wire.packed(message)
    for plane, counts in enumerate(wire.counts(compact)):
        assert counts.tolist() == only(MIXED_KIND)
        counts[MIXED_KIND] = 1 + plane
    wire.check_unpacked(compact, message)
