"""Makes the golden bytes from the oracle: python -m tests.golden.two_bit_make_golden.

The files were made once. Making them again is a change of the wire format, and needs a new
wire version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.custom_ops.cases import (
    DTYPES,
    oracle_decode_sum,
    oracle_encode,
    random_gradient,
    random_residual,
)
from tests.custom_ops.native import Codec
from tests.oracles import two_bit as oracle

SIZE = 3 * 128 + 43


def messages() -> dict[str, Any]:
    """A message of each codec and dtype, and the sum of three such messages."""
    arrays: dict[str, Any] = {}
    for seed, dtype in enumerate(DTYPES):
        rng = np.random.default_rng(seed)
        gradient, residual = random_gradient(rng, SIZE, dtype), random_residual(rng, SIZE)
        # The format of the file has no bfloat16.
        bits = np.dtype(f"u{dtype.itemsize}")
        arrays[f"{dtype}/gradient"] = gradient.view(bits)
        arrays[f"{dtype}/residual"] = residual
        for codec in Codec:
            message = oracle_encode(codec, gradient, residual)
            total = oracle_decode_sum(codec, [message] * 3, SIZE, dtype)
            name = f"{dtype}/{codec.name.lower()}"
            arrays[f"{name}/codes"] = message.codes
            arrays[f"{name}/scales"] = message.scales
            arrays[f"{name}/residual"] = message.residual
            arrays[f"{name}/sum_of_3"] = total.view(bits)
    return arrays


def shards() -> dict[str, Any]:
    """A message that two others were added to, of each dtype; counts of each width."""
    arrays: dict[str, Any] = {}
    for seed, dtype in enumerate(DTYPES):
        rng = np.random.default_rng(seed)
        others = [
            oracle_encode(Codec.AUTO, random_gradient(rng, SIZE, dtype), random_residual(rng, SIZE))
            for _ in range(2)
        ]
        codes, scales = [other.codes for other in others], [other.scales for other in others]
        gradient, residual = random_gradient(rng, SIZE, dtype), random_residual(rng, SIZE)
        arrays[f"{dtype}/codes"] = codes
        arrays[f"{dtype}/scales"] = scales
        arrays[f"{dtype}/gradient"] = gradient.view(f"u{dtype.itemsize}")
        arrays[f"{dtype}/residual"] = residual
        reencoded = oracle.reencode_auto(codes, scales, gradient, residual)
        for part, array in zip(("codes", "scales", "residual"), reencoded, strict=True):
            arrays[f"{dtype}/reencoded/{part}"] = array
    rng = np.random.default_rng(len(DTYPES))
    for bits, replicas in ((4, 7), (8, 20), (16, 130)):
        # Few codes "not finite" (01), or hardly a count would be a number.
        code = rng.choice(
            4, (replicas, 2 * 128), p=[0.4, 0.1 / replicas, 0.3, 0.3 - 0.1 / replicas]
        )
        rows = [oracle.pack(row) for row in code]
        arrays[f"counts{bits}/codes"] = rows
        arrays[f"counts{bits}/counts"] = oracle.count_fixed(rows, bits)
    return arrays


def main() -> None:
    directory = Path(__file__).parent
    np.savez_compressed(directory / "two_bit_golden.npz", **messages())
    np.savez_compressed(directory / "two_bit_shards_golden.npz", **shards())


if __name__ == "__main__":
    main()
