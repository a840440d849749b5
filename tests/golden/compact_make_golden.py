"""Makes the golden bytes from the oracle: python -m tests.golden.compact_make_golden.

Making the file again is a change of the compact wire, and needs a new `kCompactVersion`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.custom_ops.cases import CODECS, Array, oracle_encode
from tests.custom_ops.native import COMPACTIBLE, AnyCodec, num_blocks
from tests.oracles import compact as oracle_compact
from tests.oracles.compact import SEGMENT_BLOCKS

# Of one segment, and of two. The last block is partial.
SIZES = {
    "one_segment": 70 * 128 - 51,
    "two_segments": (SEGMENT_BLOCKS + 20) * 128 - 51,
    "dense": 60 * 128 - 51,
    "columns": 150 * 128 - 51,
    "pairs": 150 * 128 - 51,
}
PERIODS = {"one_segment": [], "two_segments": [], "dense": [], "columns": [2, 3], "pairs": [1]}
THRESHOLD = 0.25


def gradient_of(rng: np.random.Generator, name: str, size: int) -> Array:
    """Small gradients and some large ones. The last one of a second segment is NaN."""
    if PERIODS[name]:  # of a matrix whose rows have so many blocks
        row = 128 * PERIODS[name][-1]
        of_row = rng.laplace(size=row) * rng.laplace(size=row) ** 2
        noise = 1 + 0.03 * rng.normal(size=size)
        return (0.1 * np.resize(of_row, size) * noise).astype(np.float32)
    if name == "dense":  # where runs are sampled, so that there are no groups
        dense = rng.uniform(-0.5, 0.5, size)
        dense[17 * 128 : 32 * 128] = dense[49 * 128 :] = 0
        return dense.astype(np.float32)
    gradient = (0.1 * rng.laplace(size=size) * rng.laplace(size=size)).astype(np.float32)
    gradient[: -40 * 128] = 0  # for the size of the file
    if size > SEGMENT_BLOCKS * 128:
        gradient[-1] = np.nan
    return gradient


def message_of(codec: AnyCodec, name: str) -> Array:
    size = SIZES[name]
    gradient = gradient_of(np.random.default_rng(CODECS.index(codec)), name, size)
    encoded = oracle_encode(codec, gradient, np.zeros(size, np.float32), THRESHOLD)
    threshold = THRESHOLD if encoded.scales.size == 0 else 0.0
    return oracle_compact.make_message(
        int(codec), encoded.codes, encoded.scales, num_blocks(size), threshold
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
