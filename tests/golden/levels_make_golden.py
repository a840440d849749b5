"""Makes the golden bytes from the oracle: python -m tests.golden.levels_make_golden.

Making the file again is a change of what is sent. If codes or scales then mean something else than
before, the wire needs a new version; if only the choice of them differs, it does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.custom_ops.cases import (
    DTYPES,
    oracle_decode_sum,
    oracle_encode,
    oracle_reencode,
    random_gradient,
    random_residual,
)
from tests.custom_ops.native import Levels

SIZE = 5 * 128 + 43


def arrays() -> dict[str, Any]:
    """A message of each codec and dtype, the sum of three, a sum encoded again."""
    result: dict[str, Any] = {}
    for seed, dtype in enumerate(DTYPES):
        rng = np.random.default_rng(seed)
        gradient, residual = random_gradient(rng, SIZE, dtype), random_residual(rng, SIZE)
        # The format of the file has no bfloat16.
        bits = np.dtype(f"u{dtype.itemsize}")
        result[f"{dtype}/gradient"] = gradient.view(bits)
        result[f"{dtype}/residual"] = residual
        for codec in Levels:
            name = f"{dtype}/{codec.name.lower()}"
            message = oracle_encode(codec, gradient, residual)
            again = oracle_reencode(codec, [message] * 2, gradient, residual)
            for prefix, one in ((name, message), (f"{name}/reencoded", again)):
                result[f"{prefix}/codes"] = one.codes
                result[f"{prefix}/scales"] = one.scales
                result[f"{prefix}/residual"] = one.residual
            total = oracle_decode_sum(codec, [message] * 3, SIZE, dtype)
            result[f"{name}/sum_of_3"] = total.view(bits)
    return result


def main() -> None:
    np.savez_compressed(Path(__file__).parent / "levels_golden.npz", **arrays())


if __name__ == "__main__":
    main()
