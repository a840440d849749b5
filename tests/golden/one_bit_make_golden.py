"""Makes the golden bytes from the oracle: python -m tests.golden.one_bit_make_golden.

The file was made once. Making it again is a change of the wire format, and needs a new wire
version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.custom_ops.cases import (
    DTYPES,
    oracle_count,
    oracle_decode_sum,
    oracle_encode,
    oracle_reencode,
    random_gradient,
    random_residual,
)
from tests.custom_ops.native import OneBit

SIZE = 5 * 128 + 43


def arrays() -> dict[str, Any]:
    """A message of each codec and dtype, the sum of three, a sum encoded again; counts."""
    result: dict[str, Any] = {}
    for seed, dtype in enumerate(DTYPES):
        rng = np.random.default_rng(seed)
        gradient, residual = random_gradient(rng, SIZE, dtype), random_residual(rng, SIZE)
        # The format of the file has no bfloat16.
        bits = np.dtype(f"u{dtype.itemsize}")
        result[f"{dtype}/gradient"] = gradient.view(bits)
        result[f"{dtype}/residual"] = residual
        for codec in OneBit:
            message = oracle_encode(codec, gradient, residual)
            messages = {codec.name.lower(): message}
            if codec == OneBit.AUTO:
                messages["reencoded"] = oracle_reencode(codec, [message] * 2, gradient, residual)
            for name, one in messages.items():
                result[f"{dtype}/{name}/codes"] = one.codes
                result[f"{dtype}/{name}/scales"] = one.scales
                result[f"{dtype}/{name}/residual"] = one.residual
            total = oracle_decode_sum(codec, [message] * 3, SIZE, dtype)
            result[f"{dtype}/{codec.name.lower()}/sum_of_3"] = total.view(bits)
        fixed = oracle_encode(OneBit.FIXED, gradient, residual)
        for width in (4, 8, 16):
            result[f"{dtype}/counts{width}"] = oracle_count(OneBit.FIXED, [fixed] * 3, width)
    return result


def main() -> None:
    np.savez_compressed(Path(__file__).parent / "one_bit_golden.npz", **arrays())


if __name__ == "__main__":
    main()
