"""Makes the golden messages of rows from the oracle: python -m tests.golden.rows_make_golden.

Making the file again is a change of what is sent, and needs a new version of the wire.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.oracles import rows as oracle

# Rows of one block, of two parts, and so few elements that they do not fill a byte.
SHAPES = [(70_000, 24), (12, 200), (9, 5)]


def gradients() -> tuple[list[oracle.Slices], list[np.ndarray]]:
    """Rows of each table, some more than once, and residuals of the small tables."""
    rng = np.random.default_rng(0)
    slices = []
    for rows, columns in SHAPES:
        indices = rng.zipf(1.2, 8) % rows
        values = rng.normal(size=(8, columns)).astype(np.float32)
        values[3, 2] = np.nan
        slices.append((values, indices))
    return slices, [rng.normal(size=shape).astype(np.float32) for shape in SHAPES[1:]]


def arrays() -> dict[str, Any]:
    """A message of each codec: with residuals, and in two layers without."""
    result: dict[str, Any] = {}
    slices, residuals = gradients()
    for number, (values, indices) in enumerate(slices):
        result[f"values_{number}"], result[f"indices_{number}"] = values, indices
    for codec in oracle.CODECS:
        exact = codec == oracle.EXACT
        message, _ = oracle.encode(slices, [], SHAPES, codec, 1 if exact else 2)
        result[f"{codec}/without"] = np.frombuffer(message, np.uint8)
        if not exact:
            message, after = oracle.encode(slices[1:], residuals, SHAPES[1:], codec)
            result[f"{codec}/with"] = np.frombuffer(message, np.uint8)
            result |= {f"{codec}/residual_{i}": kept for i, kept in enumerate(after)}
    result |= {f"residual_{i}": residual for i, residual in enumerate(residuals)}
    return result


def main() -> None:
    np.savez_compressed(Path(__file__).parent / "rows_golden.npz", **arrays())


if __name__ == "__main__":
    main()
