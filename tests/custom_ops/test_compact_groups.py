"""Groups of the compact wire: a map that is sent without its groups of four zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.custom_ops import native
from tests.custom_ops.cases import Array, assert_same_bits
from tests.custom_ops.compact_cases import (
    MIXED,
    PAIRED,
    Rng,
    Targets,
    assert_refused,
    assert_unpacked,
    check_message,
    codes_of_planes,
    counts_of_kinds,
    each_codec,
    field_of,
    is_packed,
    kind_counts,
    message_of,
    only,
    random_message,
    scales_of,
    segment_headers,
    unpack_on_each,
    with_scales,
)
from tests.custom_ops.native import AnyCodec, Codec
from tests.oracles import compact as oracle_compact
from tests.oracles.compact import Format

SEGMENT = oracle_compact.SEGMENT_BLOCKS
MIXED_KIND, GROUPED_KIND = 6, 7


def message_of_map(codec: AnyCodec, runs: Array) -> Array:
    """A message with such a map, [runs, 64], the sign 0 and the rare bit 1. No block is empty."""
    planes = np.zeros((Format.of(codec).planes, runs.size))
    planes[0] = runs.reshape(-1)
    codes = codes_of_planes(np.random.default_rng(1), codec, planes)
    blocks = len(runs) // 2
    return message_of(codec, codes, np.full(blocks if native.has_scales(codec) else 0, 0x3C00))


def map_of_groups(rng: Rng, groups: Array) -> Array:
    """[runs, 64]: a map with one 1 in each of these groups, [runs, 16]."""
    ones = np.zeros((*groups.shape, 4), bool)
    np.put_along_axis(ones, rng.integers(0, 4, (*groups.shape, 1)), groups[..., None], axis=2)
    return ones.reshape(len(groups), 64)


def words_of(bits: int) -> int:
    """The uint64 of so many bits."""
    return -(-bits // 64)


# ---- What the packer chooses -------------------------------------------------------


@each_codec
@pytest.mark.parametrize("blocks", [64, 65, 80, 81])
def test_the_runs_that_are_sampled_decide(
    on_each_target: Targets, codec: AnyCodec, blocks: int
) -> None:
    rng = np.random.default_rng(blocks)
    sampled = -(-2 * blocks // 32)
    for is_rest_full in (False, True):
        # At 12 groups of 16 it takes as many bits to say which ones have a 1.
        for count in (12 * sampled - 1, 12 * sampled):
            groups = np.full((2 * blocks, 16), is_rest_full)
            groups[::32] = rng.permutation(16 * sampled).reshape(sampled, 16) < count
            message = message_of_map(codec, map_of_groups(rng, groups))
            compact = check_message(on_each_target, codec, message)
            assert is_packed(compact)
            expected = GROUPED_KIND if count < 12 * sampled else MIXED_KIND
            assert kind_counts(codec, compact)[0].tolist() == only(expected)


def test_a_map_is_longer_in_groups_if_the_sample_is_unlike_the_rest(
    on_each_target: Targets,
) -> None:
    runs = np.random.default_rng(4).permuted(np.arange(64) < np.full((2 * SEGMENT, 1), 53), axis=1)
    runs[::32] = False
    message = message_of_map(Codec.AUTO, runs)
    compact = check_message(on_each_target, Codec.AUTO, message)
    assert kind_counts(Codec.AUTO, compact)[0].tolist() == only(GROUPED_KIND)
    assert field_of(compact, MIXED)[0] > 2 * runs.size // 64


@each_codec
@pytest.mark.parametrize("density", [0.0, 0.02, 0.1, 0.2, 0.4])
def test_what_a_map_takes(on_each_target: Targets, codec: AnyCodec, density: float) -> None:
    rng = np.random.default_rng(2)
    message = random_message(rng, codec, SEGMENT, density)
    compact = check_message(on_each_target, codec, message)
    form = Format.of(codec)
    codes = message[16:][: form.code_bytes(SEGMENT)]
    magnitudes, signs = form.numbers(codes)
    nonzero = (magnitudes > 0).reshape(-1, 128)
    if form.scaled:
        nonzero = nonzero[nonzero.any(axis=1)]  # No other block is empty.
    sizes = [
        words_of(int(np.count_nonzero(sent)))
        for sent, _ in oracle_compact.planes_of(form, magnitudes, signs)
    ]
    groups = int(np.count_nonzero(nonzero.reshape(-1, 4).any(axis=1)))
    of_groups = words_of(nonzero.size // 4) + words_of(4 * groups)
    of_map = of_groups if density < 0.3 else words_of(nonzero.size)
    assert field_of(compact, MIXED) == [of_map + sum(sizes[1:])]
    # If it is grouped this is shorter, and only then.
    assert (of_groups < words_of(nonzero.size)) == (density < 0.3) or nonzero.size == 0


@each_codec
def test_each_segment_is_grouped_or_not(on_each_target: Targets, codec: AnyCodec) -> None:
    rng = np.random.default_rng(3)
    densities = [0.02, 0.5, 0.1]
    parts = [random_message(rng, codec, SEGMENT, density) for density in densities]
    form = Format.of(codec)
    end = 16 + form.code_bytes(SEGMENT)
    codes = np.concatenate([part[16:end] for part in parts])
    scales = scales_of(rng, codec, codes)
    whole = message_of(codec, codes, scales)
    mixed = field_of(check_message(on_each_target, codec, whole), MIXED)
    for part, of_segment in zip(parts, mixed, strict=True):
        compact = check_message(on_each_target, codec, part)
        assert field_of(compact, MIXED) == [of_segment]


@each_codec
def test_the_bits_of_groups(on_each_target: Targets, codec: AnyCodec) -> None:
    runs = np.zeros((128, 64), bool)
    runs[0, [0, 5, 6, 63]] = True
    runs[1, [3, 4]] = True
    runs[127, 32:36] = True
    compact = check_message(on_each_target, codec, message_of_map(codec, runs))
    assert kind_counts(codec, compact)[0].tolist() == only(GROUPED_KIND)
    start = counts_of_kinds(codec, compact).stop
    flags = compact[start : start + 256].view(np.uint16)
    assert flags[[0, 1, 127]].tolist() == [1 << 15 | 0b11, 0b11, 1 << 8]
    assert not flags[2:127].any()
    groups = [0b0001, 0b0110, 0b1000, 0b1000, 0b0001, 0b1111]
    expected = sum(group << 4 * i for i, group in enumerate(groups))
    assert int(compact[start + 256 : start + 264].view(np.uint64)[0]) == expected


# ---- What other packers may choose -------------------------------------------------


@each_codec
@pytest.mark.parametrize("runs", ["halves", "columns", "pairs"])
def test_other_packers_may_group_any_map(
    on_each_target: Targets, codec: AnyCodec, runs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    monkeypatch.setattr(oracle_compact, "best_period", lambda *_: int(runs != "halves"))
    monkeypatch.setattr(oracle_compact, "is_paired", lambda *_: runs == "pairs")
    for density, blocks in ((0.0, 100), (0.01, 150), (0.4, 300)):
        message = random_message(rng, codec, blocks, density)
        for kind in (MIXED_KIND, GROUPED_KIND):
            is_grouped = kind == GROUPED_KIND
            monkeypatch.setattr(oracle_compact, "is_grouped", lambda _, chosen=is_grouped: chosen)
            compact = oracle_compact.pack(int(codec), message)
            assert field_of(compact, PAIRED) == [int(runs == "pairs")]
            assert_unpacked(on_each_target, codec, compact, message)


@each_codec
def test_with_other_kinds_it_is_inverted(
    on_each_target: Targets, codec: AnyCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)

    def choose(_: int, sent: Array, *rest: Any) -> Array:
        return np.resize(np.array([MIXED_KIND, GROUPED_KIND], np.uint8), len(sent))

    monkeypatch.setattr(oracle_compact, "chosen_kinds", choose)
    message = random_message(rng, codec, 100, 0.2)
    compact = oracle_compact.pack(int(codec), message)
    counts = kind_counts(codec, compact).tolist()
    assert counts == [[0, 0, 0, 0, 0, 0, 255, 255]] * len(counts)
    assert_unpacked(on_each_target, codec, compact, message)


@with_scales
def test_without_runs_there_are_no_groups(on_each_target: Targets, codec: AnyCodec) -> None:
    message = random_message(np.random.default_rng(6), codec, 100, 0.0)
    compact = oracle_compact.pack(int(codec), message).copy()
    assert field_of(compact, MIXED) == [0]
    counts = kind_counts(codec, compact)
    assert not counts.any()
    counts[0, GROUPED_KIND] = 1
    assert_unpacked(on_each_target, codec, compact, message)


# ---- What is refused ---------------------------------------------------------------


def grouped(codec: AnyCodec) -> tuple[Array, slice]:
    """A packed message of 100 blocks, with a 1 in half of the groups, and where its flags are.

    These groups take 100 uint64, and the signs 25.
    """
    rng = np.random.default_rng(7)
    groups = np.resize([True, False], (200, 16))
    compact = oracle_compact.pack(int(codec), message_of_map(codec, map_of_groups(rng, groups)))
    assert kind_counts(codec, compact)[0].tolist() == only(GROUPED_KIND)
    start = counts_of_kinds(codec, compact).stop
    return compact.copy(), slice(start, start + 400)


@each_codec
def test_other_flags_are_refused_if_there_are_not_so_many_groups(
    on_each_target: Targets, codec: AnyCodec
) -> None:
    compact, where = grouped(codec)
    flags = compact[where].view(np.uint16)
    for run, value in ((0, 0xFFFF), (77, 0xFFFF), (199, 0x5557)):
        flags[run] = value  # more groups
        assert_refused(on_each_target, codec, 100, compact)
        flags[run] = 0x5555
    for runs in ([0, 1], [5, 100], slice(None)):
        flags[runs] = 0  # 16 groups less take a uint64 less
        assert_refused(on_each_target, codec, 100, compact)
        flags[runs] = 0x5555
    # Then as many uint64 are read, but not the same groups.
    flags[[0, 1]] = 0, 0x0001
    expected = oracle_compact.unpack(int(codec), 100, compact)
    result = unpack_on_each(on_each_target, codec, 100, compact)
    assert result is not None
    assert_same_bits(result, expected)


@each_codec
def test_mixed_bits_that_end_among_groups_are_refused(
    on_each_target: Targets, codec: AnyCodec
) -> None:
    compact, where = grouped(codec)
    mixed = field_of(compact, MIXED)[0]
    assert mixed == 50 + 100 + 25 * (Format.of(codec).planes - (1 + Format.of(codec).has_rare_bits))
    for fewer in (0, 1, 49, 50, 51, 149, 150, mixed - 1):
        changed = compact.copy()
        segment_headers(changed, 1)[MIXED] = fewer
        assert_refused(on_each_target, codec, 100, changed)
        changed = np.pad(changed[: where.start + 8 * fewer], (0, 8))
        assert_refused(on_each_target, codec, 100, changed[: changed.size // 16 * 16])


@each_codec
def test_another_only_kind_of_a_map_with_groups_is_refused(
    on_each_target: Targets, codec: AnyCodec
) -> None:
    compact, _ = grouped(codec)
    of_map = kind_counts(codec, compact)[0]
    for kind in range(GROUPED_KIND):
        of_map[:] = only(kind)
        assert_refused(on_each_target, codec, 100, compact)
        of_map[GROUPED_KIND] = 255  # of several kinds
        assert_refused(on_each_target, codec, 100, compact)
