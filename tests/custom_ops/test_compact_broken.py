"""Bytes that are no message of the compact wire are refused, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import oracle_compact
from tests.custom_ops.cases import assert_same_bits
from tests.custom_ops.compact_cases import (
    SEGMENTS_OFFSET,
    Targets,
    each_codec,
    is_packed,
    pack,
    random_message,
    searched,
    segment_headers,
    unpack,
)
from tests.custom_ops.native import COMPACTIBLE, AnyCodec, Library


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
    message = random_message(np.random.default_rng(9), codec, 60, density)
    compact = pack(library, codec, message)
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
        tables = oracle_compact.Tables([16] * 256, [32] * 128, 77 if form.has_rare_bits else 0)
        # The segment as it is, which the format has, but not in a message that is not shorter.
        body = [
            np.zeros(16 if blocks else 0, np.uint8),
            message[16 : 16 + form.plain_bytes(blocks)],
        ]
        parts = [head, np.frombuffer(tables.to_bytes(), np.uint8), *body, np.zeros(16, np.uint8)]
        compact = np.concatenate(parts)
        assert_same_bits(oracle_compact.unpack(int(codec), blocks, compact)[:16], message[:16])
        assert unpack(library, codec, blocks, compact) is None


HOSTILE = [0, 1, 2, 63, 64, 0xFFFF, 1 << 31, 0xFFFFFFFF]


@each_codec
@given(data=st.data())
@searched
def test_changed_messages_are_refused_or_are_what_the_oracle_says(
    on_each_target: Targets, codec: AnyCodec, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    message = random_message(rng, codec, 40, data.draw(st.sampled_from([0.02, 0.2])))
    compact = oracle_compact.pack(int(codec), message).copy()
    if data.draw(st.booleans()):  # a field of the segment's header
        header = segment_headers(compact, 1)[0]
        field = data.draw(st.integers(0, 3))
        near = (int(header[field]) + data.draw(st.integers(-2, 2))) % (1 << 32)
        header[field] = data.draw(st.sampled_from([near, *HOSTILE]))
    else:
        parts = [(0, 16), (16, SEGMENTS_OFFSET), (SEGMENTS_OFFSET + 16, compact.size)]
        start, end = data.draw(st.sampled_from(parts))
        compact[data.draw(st.integers(start, end - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        expected = oracle_compact.unpack(int(codec), 40, compact)
    except oracle_compact.BrokenError:
        expected = None
    results = [unpack(library, codec, 40, compact) for library in on_each_target()]
    for result in results:
        # The library also refuses bits after the last one of a part.
        assert (result is None) == (results[0] is None)
        if result is not None:
            assert expected is not None
            assert_same_bits(result, expected)
