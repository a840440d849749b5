"""The codecs give the recorded bytes: ours, and MXNet's sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.custom_ops.cases import (
    Array,
    Message,
    assert_same_bits,
    decode_sum,
    each_dtype,
    each_target,
    encode,
    oracle_decode_sum,
    oracle_encode,
)
from tests.custom_ops.native import Codec, Library

each_codec = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
GOLDEN = Path(__file__).parents[1] / "golden"
MXNET_CASES = ["uniform_2x3", "ramp_4x4", "normal_37", "normal_100x100"]


def recorded(codec: Codec, dtype: np.dtype[Any]) -> tuple[Array, Array, Message, Array]:
    """Gradient, residual, the message, and the sum of three such messages."""
    with np.load(GOLDEN / "two_bit_golden.npz") as file:
        name = codec.name.lower()
        message = Message(
            *(file[f"{dtype}/{name}/{part}"] for part in ("codes", "scales", "residual"))
        )
        gradient = file[f"{dtype}/gradient"].view(dtype)
        total = file[f"{dtype}/{name}/sum_of_3"].view(dtype)
        return gradient, file[f"{dtype}/residual"], message, total


@each_dtype
@each_codec
def test_the_oracle_gives_the_golden_bytes(codec: Codec, dtype: np.dtype[Any]) -> None:
    gradient, residual, message, total = recorded(codec, dtype)
    oracle_encode(codec, gradient, residual).assert_equals(message)
    assert_same_bits(oracle_decode_sum(codec, [message] * 3, gradient.size, dtype), total)


@each_target
@each_dtype
@each_codec
def test_the_library_gives_the_golden_bytes(
    forced: Library, codec: Codec, dtype: np.dtype[Any]
) -> None:
    gradient, residual, message, total = recorded(codec, dtype)
    encode(forced, codec, gradient, residual).assert_equals(message)
    assert_same_bits(decode_sum(forced, codec, [message] * 3, gradient.size, dtype), total)


@each_target
@pytest.mark.parametrize("case", MXNET_CASES)
def test_sums_equal_those_of_mxnet(forced: Library, case: str) -> None:
    with np.load(GOLDEN / "mxnet_1_9_1_two_bit.npz") as file:
        gradients, sums = file[f"{case}__grads"], file[f"{case}__sums"]
        threshold = float(file[f"{case}__threshold"])
    steps, replicas = gradients.shape[:2]
    size = sums[0].size
    residuals = [np.zeros(size, np.float32) for _ in range(replicas)]
    for step in range(steps):
        messages = [
            encode(forced, Codec.FIXED, gradients[step, r].ravel(), residuals[r], threshold)
            for r in range(replicas)
        ]
        residuals = [message.residual for message in messages]
        total = decode_sum(forced, Codec.FIXED, messages, size, np.dtype(np.float32), threshold)
        np.testing.assert_array_equal(total, sums[step].ravel())
