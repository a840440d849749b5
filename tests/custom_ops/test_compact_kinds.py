"""Kinds of runs of the compact wire: bits of each kind, and planes of only one kind."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.custom_ops import native
from tests.custom_ops.cases import Array
from tests.custom_ops.compact_cases import (
    CHANCES,
    MIXED_KIND,
    PAIRED,
    Rng,
    Targets,
    assert_unpacked,
    check_message,
    choose_all_mixed,
    codes_by_column,
    codes_by_half,
    codes_of_planes,
    each_codec,
    field_of,
    is_packed,
    kind_counts,
    message_of,
    only,
    periods_of,
    random_message,
    scales_of,
)
from tests.custom_ops.native import BLOCK_SIZE, AnyCodec
from tests.oracles import compact as oracle_compact
from tests.oracles import runs as oracle_runs
from tests.oracles.compact import Format
from tests.oracles.rans import KINDS

SEGMENT = oracle_compact.SEGMENT_BLOCKS
# For each kind that the packer chooses: after how many bits one differs from the others.
STEPS = {0: 0, 1: 0, 2: 16, 3: 16, 4: 4, 5: 4, 6: 2}


def bits_of_kind(kind: int, blocks: int) -> Array:
    """[blocks, BLOCK_SIZE]: bits whose runs, halves of blocks or columns, are all of this kind."""
    step = STEPS[kind]
    if step == 0:
        return np.full((blocks, BLOCK_SIZE), kind == 1)
    few = (np.arange(blocks)[:, None] + np.arange(BLOCK_SIZE)) % step == 0
    return few ^ (kind % 2 == 1)


def message_of_planes(rng: Rng, codec: AnyCodec, chances: Array) -> Array:
    codes = codes_of_planes(rng, codec, chances)
    return message_of(codec, codes, scales_of(rng, codec, codes))


def planes_of(codec: AnyCodec) -> range:
    return range(Format.of(codec).planes)


# ---- What the packer chooses -------------------------------------------------------


@each_codec
@pytest.mark.parametrize("period", [0, 3])
def test_runs_are_of_each_kind(on_each_target: Targets, codec: AnyCodec, period: int) -> None:
    rng = np.random.default_rng(9)
    blocks = SEGMENT - 50
    codes = codes_by_column(rng, codec, blocks, 3) if period else codes_by_half(rng, codec, blocks)
    message = message_of(codec, codes, scales_of(rng, codec, codes))
    compact = check_message(on_each_target, codec, message, [3])
    assert periods_of(compact) == [period]
    counts = kind_counts(codec, compact)
    assert (counts[:, :-1] > 0).all()
    assert not counts[:, -1].any()  # Mixed bits are not inverted.
    assert (counts.max(axis=1) == 255).all()


@each_codec
def test_all_runs_of_a_plane_are_of_one_kind(on_each_target: Targets, codec: AnyCodec) -> None:
    rng = np.random.default_rng(12)
    blocks = 100
    for plane in planes_of(codec):
        for kind in STEPS:
            bits = np.ones((len(planes_of(codec)), blocks, BLOCK_SIZE))
            bits[plane] = bits_of_kind(kind, blocks)
            if native.has_scales(codec):
                bits[0, ::2] = 0  # Blocks that are empty, so that it gets smaller.
            message = message_of_planes(rng, codec, bits.reshape(len(bits), -1))
            compact = check_message(on_each_target, codec, message, [3])
            assert is_packed(compact)
            assert periods_of(compact) == [0]
            if native.has_scales(codec) and plane == kind == 0:
                continue  # No block is left.
            counts = kind_counts(codec, compact)[plane].tolist()
            assert counts == only(kind)


@each_codec
@pytest.mark.parametrize("tile", [64, 128])
def test_planes_of_one_kind_where_a_period_is_chosen(
    on_each_target: Targets, codec: AnyCodec, tile: int
) -> None:
    rng = np.random.default_rng(13)
    planes = len(planes_of(codec))
    for equal in range(planes):
        # In a column of a tile all bits of a plane are 0, or all are 1.
        columns = rng.random((planes, 3, BLOCK_SIZE)) < 0.5
        if equal == 1:
            columns[1] = False
        else:
            columns[0], columns[2 : equal + 1] = True, True
        bits = columns[:, np.arange(3 * tile) % 3].reshape(planes, -1)
        message = message_of_planes(rng, codec, bits)
        compact = check_message(on_each_target, codec, message, [3])
        assert periods_of(compact) == [3]
        assert field_of(compact, PAIRED) == [int(tile == 128)]
        counts = kind_counts(codec, compact)
        assert not counts[:, 2:].any()
        assert counts[equal].tolist() == only(0 if equal == 1 else 1)


# ---- What other packers may choose -------------------------------------------------


@each_codec
def test_other_packers_may_choose_other_kinds_and_counts(
    on_each_target: Targets, codec: AnyCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(10)
    best = oracle_runs.kind_of

    def any_kind(ones: int, bits: int) -> int:
        if rng.random() < 0.9:
            return best(ones, bits)
        equal = [kind for kind, of_kind in enumerate((0, bits)) if ones == of_kind]
        return int(rng.choice([*equal, *range(2, KINDS)]))

    monkeypatch.setattr(oracle_runs, "kind_of", any_kind)
    for blocks, period in ((70, 0), (SEGMENT, 0), (300, 4), (300, 2), (300, SEGMENT)):
        monkeypatch.setattr(oracle_compact, "best_period", lambda *_, chosen=period: chosen)
        for of_counts in (oracle_runs.counts_of, lambda kinds: rng.bytes(KINDS)):
            with monkeypatch.context() as patched:
                patched.setattr(oracle_runs, "counts_of", of_counts)
                message = random_message(rng, codec, blocks, 0.03)
                compact = oracle_compact.pack(int(codec), message, [1])
            assert periods_of(compact) == [period]
            assert_unpacked(on_each_target, codec, compact, message)


@each_codec
@pytest.mark.parametrize("kind", range(KINDS))
@pytest.mark.parametrize(("period", "paired"), [(0, 0), (3, 0), (3, 1)])
def test_other_packers_may_choose_any_only_kind(
    on_each_target: Targets,
    codec: AnyCodec,
    kind: int,
    period: int,
    paired: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(kind)
    planes = planes_of(codec)
    find = oracle_compact.kinds_of
    monkeypatch.setattr(oracle_compact, "best_period", lambda *_: period)
    monkeypatch.setattr(oracle_compact, "is_paired", lambda *_: paired)
    for plane in planes:
        chances = rng.choice(CHANCES, (len(planes), 300))
        # So few that a message gets smaller whatever its kinds are.
        chances[0] = rng.choice([0.01, 0.03, 0.08], 300)
        if plane == 0 and kind in (3, 5):
            chances[0], chances[1:] = 0.95, 0.02
        if kind < 2:
            chances[plane] = kind
        message = message_of_planes(rng, codec, chances.repeat(BLOCK_SIZE // 2, axis=1))

        numbers = itertools.count()

        def choose(*of_plane: Any, chosen: int = plane, numbers: Any = numbers) -> Array:
            kinds = find(*of_plane)
            return np.full_like(kinds, kind) if next(numbers) == chosen else kinds

        with monkeypatch.context() as patched:
            patched.setattr(oracle_compact, "kinds_of", choose)
            compact = oracle_compact.pack(int(codec), message)
        counts = kind_counts(codec, compact)[plane].tolist()
        # There may be no runs, if all of the blocks are empty.
        assert counts == only(kind) or (plane == kind == 0 and not any(counts))
        assert_unpacked(on_each_target, codec, compact, message)


@each_codec
@pytest.mark.parametrize("period", [0, 3])
def test_counts_that_are_all_0_are_those_of_kind_0(
    on_each_target: Targets, codec: AnyCodec, period: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(14)
    monkeypatch.setattr(oracle_compact, "best_period", lambda *_: period)
    for plane in planes_of(codec):
        chances = np.full((len(planes_of(codec)), 100 * BLOCK_SIZE), 0.2)
        chances[plane] = 0
        message = message_of_planes(rng, codec, chances)
        compact = oracle_compact.pack(int(codec), message, [1]).copy()
        counts = kind_counts(codec, compact)
        for count in (255, 1, 0):
            counts[plane] = only(0, count)
            assert_unpacked(on_each_target, codec, compact, message)


@each_codec
def test_another_count_of_an_only_kind_changes_nothing(
    on_each_target: Targets, codec: AnyCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_all_mixed(monkeypatch)
    message = random_message(np.random.default_rng(15), codec, 100, 0.2)
    compact = oracle_compact.pack(int(codec), message).copy()
    for plane, counts in enumerate(kind_counts(codec, compact)):
        assert counts.tolist() == only(MIXED_KIND)
        counts[MIXED_KIND] = 1 + plane
    assert_unpacked(on_each_target, codec, compact, message)
