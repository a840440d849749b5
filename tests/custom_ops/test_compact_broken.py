"""Bytes that are no message of the compact wire are refused, and no others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bits import assert_same_bits
from tests.custom_ops.cases import Array
from tests.custom_ops.compact_cases import (
    SEGMENT,
    Wire,
    choose_all_mixed,
    field_of,
    is_packed,
    only,
    searched,
    segment_headers,
    unpack,
)
from tests.custom_ops.native import BLOCK_SIZE, COMPACTIBLE, Library
from tests.oracles import compact as oracle
from tests.oracles.rans import KINDS


def test_zeros_may_follow_a_message(wire: Wire) -> None:
    for density in (0.1, 1.0):
        message = wire.random(100, density)
        assert_same_bits(wire.on_each(100, np.pad(wire.packed(message), (0, 4096))), message)


@pytest.mark.parametrize("density", [0.1, 1.0])
def test_a_message_that_was_cut_short_is_refused(
    wire: Wire, library: Library, density: float
) -> None:
    compact = wire.packed(wire.random(60, density))
    for size in range(compact.size):
        assert unpack(library, wire.codec, 60, compact[:size]) is None


def test_a_message_of_another_bucket_or_codec_is_refused(wire: Wire, library: Library) -> None:
    compact = wire.packed(wire.random(64, 0.1))
    assert is_packed(compact)
    for blocks in (0, 1, 63, 65):
        assert wire.on_each(blocks, compact) is None
    for other in COMPACTIBLE:
        assert (unpack(library, other, 64, compact) is None) == (other != wire.codec)


@pytest.mark.parametrize("blocks", [0, 1, 60])
def test_a_packed_message_that_is_not_shorter_is_refused(wire: Wire, blocks: int) -> None:
    message = wire.random(blocks, 0.1)
    head = message[:16].copy()
    head[:2] = np.array([oracle.COMPACT_MAGIC], np.uint16).view(np.uint8)
    table = np.full(128, 32, np.uint16).view(np.uint8)
    # The segment as it is, which the format has, but not in a message that is not shorter.
    header = np.zeros(16 if blocks else 0, np.uint8)
    segment = message[16 : 16 + wire.form.plain_bytes(blocks)]
    compact = np.concatenate([head, table, header, segment, np.zeros(16, np.uint8)])
    with pytest.raises(oracle.BrokenError, match="not shorter"):
        wire.unpacked(blocks, compact)
    wire.check_refused(blocks, compact)


def packed_columns(wire: Wire, period: int = 2) -> tuple[Array, Array]:
    """A message of one segment with a period, and its packed form. With period 1 it is paired."""
    message = wire.by_column(150, period)
    compact = wire.packed(message, [period])
    assert field_of(compact, "period") == [period]
    return message, compact


@pytest.mark.parametrize("runs", ["halves", "columns", "pairs"])
def test_other_numbers_in_the_header_of_a_segment_are_refused(wire: Wire, runs: str) -> None:
    message, compact = packed_columns(wire, 1 if runs == "pairs" else 2)
    if runs == "halves":
        compact = wire.packed(message)
    words, mixed, filled, period, paired = segment_headers(compact)[0].item()
    assert words > 64
    assert mixed > 1
    assert filled == 150
    assert (period, paired) == {"columns": (2, 0), "pairs": (1, 1)}.get(runs, (0, 0))
    longest = (1 << 32) - 1
    changes = {
        "words": [0, 1, 63, 64, words - 1, words + 1, words + 4, 1 << 31, longest],
        "mixed": [0, mixed - 1, mixed + 1, mixed + 2, 73729, 1 << 29, 1 << 31, longest],
        "filled": [0, 149, 151, 4096, 1 << 31, longest],
        "period": [4097, 1 << 15, (1 << 16) - 1],
        "paired": [*([] if period else [1]), 2, 256, (1 << 16) - 1],
    }
    for field, values in changes.items():
        for value in values:
            changed = np.pad(compact, (0, 64))  # so that nothing is missing
            segment_headers(changed)[field] = value
            wire.check_refused(150, changed)


def test_without_a_period_nothing_is_paired(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if all bits are mixed, so that nothing else speaks against it."""
    choose_all_mixed(monkeypatch)
    compact = wire.packed(wire.random(150, 0.1))
    segment_headers(compact)["paired"] = 1
    wire.check_refused(150, compact)
    segment_headers(compact)["period"] = 1
    assert wire.check_as_oracle(150, compact) is not None


def test_a_segment_that_is_not_coded_has_no_other_numbers(wire: Wire) -> None:
    codes = wire.codes(SEGMENT + 20, 0.02)
    of_last = codes[-20 * wire.block_bytes :]
    of_last[:] = wire.rng.integers(0, 256, of_last.size)
    compact = wire.packed(wire.message(codes))
    assert segment_headers(compact)[1].item() == (0, 0, 0, 0, 0)
    assert wire.on_each(SEGMENT + 20, compact) is not None
    for field in ("mixed", "filled", "period", "paired"):
        for value in (1, 20):
            changed = compact.copy()
            segment_headers(changed)[field][1] = value
            wire.check_refused(SEGMENT + 20, changed)


def test_with_another_period_the_blocks_are_others(wire: Wire) -> None:
    message, compact = packed_columns(wire)
    for period in (1, 3, 149, 4096):
        segment_headers(compact)["period"] = period
        other = wire.check_as_oracle(150, compact)
        assert other is not None
        assert (other != message).any()


def test_counts_matter_in_proportion(wire: Wire) -> None:
    # All bits of a run are 0 or all are 1, of equally many runs.
    chances = np.ones((wire.planes, 200))
    chances[:2] = np.resize([0, 1], 200), np.resize([0, 0, 0, 1], 200)
    message = wire.message(wire.codes_of_planes(chances.repeat(BLOCK_SIZE // 2, axis=1)))
    compact = wire.packed(message)
    of_plane = wire.counts(compact)[0]
    assert of_plane.tolist() == [255, 255, 0, 0, 0, 0, 0, 0]
    of_plane[:2] = 1
    wire.check_unpacked(compact, message)
    for other in ([2, 1, 0], [1, 2, 0], [1, 1, 1]):
        of_plane[:3] = other
        wire.check_refused(100, compact)


def test_rows_of_kinds_that_are_missing_are_refused(wire: Wire) -> None:
    compact = wire.packed(wire.message(wire.codes_by_half(100)))
    for of_plane in wire.counts(compact):
        before = of_plane.copy()
        assert np.count_nonzero(before) > 2
        for kept in range(KINDS):
            of_plane[:] = 0
            of_plane[kept] = before[kept]
            wire.check_refused(100, compact)
        of_plane[:] = before


def test_another_only_kind_or_rows_of_kinds_for_it_are_refused(wire: Wire) -> None:
    chances = np.ones((wire.planes, 100 * BLOCK_SIZE))
    chances[0] = 0.2
    message = wire.message(wire.codes_of_planes(chances))
    compact = wire.packed(message)
    of_signs = wire.counts(compact)[1]
    assert of_signs.tolist() == only(1)
    for kind in range(KINDS):
        of_signs[:] = only(kind)
        if kind in (0, 1):  # The inverted kind fits as well.
            found = wire.check_as_oracle(100, compact)
            assert found is not None
            assert (kind == 1) == np.array_equal(found, message)
        else:
            wire.check_refused(100, compact)
            of_signs[1] = 255
            wire.check_refused(100, compact)


@given(seed=st.integers(0, 2**32 - 1), columns=st.booleans(), density=st.sampled_from([0.02, 0.2]))
@searched
def test_changed_messages_are_refused_or_are_what_the_oracle_says(
    wire: Wire, seed: int, columns: bool, density: float
) -> None:
    wire.rng = np.random.default_rng(seed)
    blocks = 140 if columns else 40  # enough to be paired, or not
    message = wire.by_column(blocks, 1) if columns else wire.random(blocks, density)
    compact = wire.packed(message, [1] if wire.rng.random() < 0.5 else [])
    assert is_packed(compact)
    wire.check_as_oracle(blocks, wire.changed(compact))
