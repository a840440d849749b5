"""Makes the golden bytes from the oracle: python -m tests.golden.compact_make_golden.

Making the file again is a change of the compact wire, and needs a new `kCompactVersion`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests import oracle_compact
from tests.custom_ops.cases import CODECS, Array, oracle_encode
from tests.custom_ops.native import COMPACTIBLE, AnyCodec, num_blocks
from tests.oracle_compact import SEGMENT_BLOCKS

# Of one segment, and of two. The last block is partial.
SIZES = {"one_segment": 70 * 128 - 51, "two_segments": (SEGMENT_BLOCKS + 20) * 128 - 51}
THRESHOLD = 0.25


def message_of(codec: AnyCodec, size: int) -> Array:
    """A message of small gradients and some large ones. The last one of a second segment is NaN."""
    rng = np.random.default_rng(CODECS.index(codec))
    gradient = (0.1 * rng.laplace(size=size) * rng.laplace(size=size)).astype(np.float32)
    gradient[: -40 * 128] = 0  # for the size of the file
    if size > SEGMENT_BLOCKS * 128:
        gradient[-1] = np.nan
    encoded = oracle_encode(codec, gradient, np.zeros(size, np.float32), THRESHOLD)
    threshold = THRESHOLD if encoded.scales.size == 0 else 0.0
    return oracle_compact.make_message(
        int(codec), encoded.codes, encoded.scales, num_blocks(size), threshold
    )


def arrays() -> dict[str, Array]:
    """Messages of each codec, and their packed form."""
    result: dict[str, Array] = {}
    for codec in COMPACTIBLE:
        for name, size in SIZES.items():
            message = message_of(codec, size)
            result[f"{int(codec)}/{name}/message"] = message
            result[f"{int(codec)}/{name}/compact"] = oracle_compact.pack(int(codec), message)
    return result


def main() -> None:
    np.savez_compressed(Path(__file__).parent / "compact_golden.npz", **arrays())


if __name__ == "__main__":
    main()
