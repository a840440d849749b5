"""Calls of Pack and Unpack, and of Unpack with what Pack has made."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np

from tests.sanitize.bucket_model import same_bits
from tests.sanitize.case import Case, hostile
from tests.sanitize.wire_model import (
    HEADER,
    HUGE,
    SHAPE,
    Array,
    Family,
    Format,
    Rng,
    bucket_of,
    change_messages,
    problems_of,
)

# What pack_case() has packed: the family, the compact messages and the messages.
PACKED: collections.deque[tuple[Family, Array, Array]] = collections.deque(maxlen=20)


def blocks_of(message: Format, words: int) -> int:
    """The blocks of a message of so many words, -1 if none has so many."""
    blocks = (8 * words - HEADER.size) // message.block_bytes()
    return blocks if 0 <= blocks <= 2**54 and message.words(blocks) == words else -1


def pack_case(family: Family, rng: Rng) -> Case:
    _, blocks = bucket_of(rng)
    message = family.format()
    blocks = min(blocks * int(rng.choice([1, 50])), 3000)  # of up to three segments
    rows = [message.row(blocks, rng) for _ in range(rng.integers(1, 4))]
    if rng.integers(2):  # which gets smaller
        rows = [np.where(np.arange(row.size) % 5 < 3, row, 0) for row in rows]
        for row in rows:
            row.view(np.uint8)[: HEADER.size] = message.row(blocks, rng).view(np.uint8)[
                : HEADER.size
            ]
    row_blocks = int(rng.integers(1, 20))
    if rng.integers(2):  # of a matrix whose rows are alike
        for row in rows:
            codes, _ = message.parts(row, blocks)
            codes[:] = np.resize(codes[: 16 * message.bits * row_blocks], codes.size)
    messages = change_messages([np.stack(rows)], rng)[0]
    periods = [row_blocks, *rng.integers(1, 4097, 3).tolist()][: rng.integers(5)]
    attributes, wrong = hostile({**family.attributes(), "periods": periods}, rng)
    if family.name == "one_bit":
        wrong.append("no compact form")
    words = messages.shape[1] if len(messages.shape) == 2 else -1
    blocks = blocks_of(message, words)
    if words == -1:
        wrong.append(SHAPE)
    elif blocks == -1:
        wrong.append(f"no message of codec {family.name} has {words} words")
    else:
        wrong += problems_of([messages], message, blocks, len(messages))

    def check(result: Any) -> None:
        compact, lengths = (part.numpy() for part in result)
        assert (lengths <= words).all()
        for row, length in zip(compact, lengths, strict=True):
            assert not row[length:].any()
        if len(lengths):
            PACKED.append((family, compact[:, : max(lengths)], np.asarray(messages)))

    return Case("pack", {"messages": messages, **attributes}, wrong, check)


def unpack_case(family: Family, rng: Rng) -> Case:
    if not PACKED:
        return pack_case(family, rng)
    family, compact, messages = PACKED[rng.integers(len(PACKED))]
    words = messages.shape[1]
    attributes, wrong = hostile(family.attributes(), rng)
    changed = rng.integers(8)
    if changed < 2:
        compact = change_messages([compact], rng)[0]
    elif changed == 2 and compact.size:  # bytes of one row
        compact = compact.copy()
        row = compact[rng.integers(len(compact))].view(np.uint8)
        row[rng.integers(row.size, size=3)] = rng.integers(256, size=3)
    elif changed == 3:
        words = int(rng.choice([*HUGE, -1, 0, words + 2, words + 6, words - 2]))
    else:  # padding
        compact = np.pad(compact, [(0, 0), (0, int(rng.integers(3)))])

    def check(result: Any) -> None:
        if changed > 3:
            same_bits(result, messages)
        else:
            assert result.shape == (compact.shape[0], words)

    inputs = {"compact": compact, "words": np.int64(words), **attributes}
    return Case("unpack", inputs, wrong, check, either=changed <= 3)
