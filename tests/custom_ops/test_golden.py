"""The oracle and the library give the recorded bytes: ours, and MXNet's sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bits import assert_same_bits
from tests.custom_ops.cases import (
    Message,
    Parity,
    each_auto,
    each_codec,
    each_dtype,
)
from tests.custom_ops.native import AnyCodec, Codec, Levels, OneBit
from tests.golden.make import COUNT_BITS

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = {Codec: "two_bit", OneBit: "one_bit", Levels: "levels"}
NONE = np.zeros(0)


def recorded(file: Any, name: str) -> Message:
    return Message(*(file[f"{name}/{part}"] for part in ("codes", "scales", "residual")))


@each_dtype
@each_codec
def test_messages_and_sums(parity: Parity, codec: AnyCodec, dtype: np.dtype[Any]) -> None:
    name = f"{dtype}/{codec.name.lower()}"
    with np.load(GOLDEN / f"{FILES[type(codec)]}_golden.npz") as file:
        gradient, residual = file[f"{dtype}/gradient"].view(dtype), file[f"{dtype}/residual"]
        message, total = recorded(file, name), file[f"{name}/sum_of_3"].view(dtype)
    parity.encode(codec, gradient, residual).assert_equals(message)
    assert_same_bits(parity.decode_sum(codec, [message] * 3, gradient.size, dtype), total)


@each_dtype
@each_auto
def test_sums_that_are_encoded_again(parity: Parity, codec: AnyCodec, dtype: np.dtype[Any]) -> None:
    name = "two_bit_shards" if codec == Codec.AUTO else FILES[type(codec)]
    with np.load(GOLDEN / f"{name}_golden.npz") as file:
        gradient, residual = file[f"{dtype}/gradient"].view(dtype), file[f"{dtype}/residual"]
        own = f"{dtype}/{codec.name.lower()}"
        expected = recorded(file, f"{own if codec in [*Levels] else dtype}/reencoded")
        if codec == Codec.AUTO:
            rows = zip(file[f"{dtype}/codes"], file[f"{dtype}/scales"], strict=True)
            others = [Message(codes, scales, NONE) for codes, scales in rows]
        else:
            others = [recorded(file, own)] * 2
    parity.reencode(codec, others, gradient, residual).assert_equals(expected)


@pytest.mark.parametrize("bits", COUNT_BITS)
def test_counts(parity: Parity, bits: int) -> None:
    with np.load(GOLDEN / "two_bit_shards_golden.npz") as file:
        messages = [Message(codes, NONE, NONE) for codes in file[f"counts{bits}/codes"]]
        recordings = [(Codec.FIXED, messages, file[f"counts{bits}/counts"])]
    with np.load(GOLDEN / "one_bit_golden.npz") as file:
        messages = [recorded(file, "float32/fixed")] * 3
        recordings.append((OneBit.FIXED, messages, file[f"float32/counts{bits}"]))
    for codec, messages, expected in recordings:
        assert_same_bits(parity.count(codec, messages, bits), expected)
