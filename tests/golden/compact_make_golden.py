"""Makes the golden bytes from the oracle: python -m tests.golden.compact_make_golden.

Making the file again is a change of the compact wire, and needs a new `kCompactVersion`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.custom_ops.cases import CODECS, Array, oracle_encode
from tests.custom_ops.native import COMPACTIBLE, AnyCodec, num_blocks
from tests.oracles import compact as oracle_compact

# The last block is partial.
SIZE = 150 * 128 - 51
PERIODS = {"columns": [2, 3], "pairs": [1]}
THRESHOLD = 0.25


def gradient_of(rng: np.random.Generator, row_blocks: int) -> Array:
    """Small gradients and some large ones, of a matrix whose rows have so many blocks."""
    row = 128 * row_blocks
    of_row = rng.laplace(size=row) * rng.laplace(size=row) ** 2
    noise = 1 + 0.03 * rng.normal(size=SIZE)
    return (0.1 * np.resize(of_row, SIZE) * noise).astype(np.float32)


def message_of(codec: AnyCodec, name: str) -> Array:
    gradient = gradient_of(np.random.default_rng(CODECS.index(codec)), PERIODS[name][-1])
    encoded = oracle_encode(codec, gradient, np.zeros(SIZE, np.float32), THRESHOLD)
    threshold = THRESHOLD if encoded.scales.size == 0 else 0.0
    return oracle_compact.make_message(
        int(codec), encoded.codes, encoded.scales, num_blocks(SIZE), threshold
    )


def arrays() -> dict[str, Array]:
    """Messages of each codec, the periods that they are packed with, and their packed form."""
    result: dict[str, Array] = {}
    for codec in COMPACTIBLE:
        for name, periods in PERIODS.items():
            message = message_of(codec, name)
            compact = oracle_compact.pack(int(codec), message, periods)
            parts = {"message": message, "periods": np.array(periods, np.int32), "compact": compact}
            result.update({f"{int(codec)}/{name}/{part}": array for part, array in parts.items()})
    return result


def main() -> None:
    np.savez_compressed(Path(__file__).parent / "compact_golden.npz", **arrays())


if __name__ == "__main__":
    main()
