"""Makes the golden bytes from the oracles: python -m tests.golden.make.

The files were made once. Making them again is a change of a wire, and needs a new version of it,
unless only the choice of codes and scales differs, and not what they mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.custom_ops.cases import (
    CODECS,
    DTYPES,
    FIXED,
    THRESHOLD,
    Array,
    Message,
    oracle_count,
    oracle_decode_sum,
    oracle_encode,
    oracle_reencode,
    random_gradient,
    random_residual,
)
from tests.custom_ops.native import COMPACTIBLE, Codec, Levels, OneBit, num_blocks
from tests.oracles import compact, rows, two_bit

COUNT_BITS = (4, 8, 16)


def parts_of(name: str, message: Message) -> dict[str, Array]:
    return {f"{name}/{part}": getattr(message, part) for part in ("codes", "scales", "residual")}


def messages(codecs: type[Codec] | type[OneBit] | type[Levels], size: int) -> dict[str, Any]:
    """A message of each codec and dtype, the sum of three, a sum encoded again; counts."""
    result: dict[str, Any] = {}
    for seed, dtype in enumerate(DTYPES):
        rng = np.random.default_rng(seed)
        gradient, residual = random_gradient(rng, size, dtype), random_residual(rng, size)
        bits = np.dtype(f"u{dtype.itemsize}")  # the format of the file has no bfloat16
        result |= {f"{dtype}/gradient": gradient.view(bits), f"{dtype}/residual": residual}
        for codec in codecs:
            name = f"{dtype}/{codec.name.lower()}"
            message = oracle_encode(codec, gradient, residual)
            result |= parts_of(name, message)
            total = oracle_decode_sum(codec, [message] * 3, size, dtype)
            result[f"{name}/sum_of_3"] = total.view(bits)
            again = {OneBit.AUTO: f"{dtype}/reencoded"}
            again |= dict.fromkeys(Levels, f"{name}/reencoded")
            if codec in again:
                sums = oracle_reencode(codec, [message] * 2, gradient, residual)
                result |= parts_of(again[codec], sums)
            if codec == OneBit.FIXED:
                for width in COUNT_BITS:
                    counts = oracle_count(codec, [message] * 3, width)
                    result[f"{dtype}/counts{width}"] = counts
    return result


def two_bit_shards(size: int) -> dict[str, Any]:
    """A message that two others were added to, of each dtype; counts of each width."""
    result: dict[str, Any] = {}
    for seed, dtype in enumerate(DTYPES):
        rng = np.random.default_rng(seed)
        others = [
            oracle_encode(Codec.AUTO, random_gradient(rng, size, dtype), random_residual(rng, size))
            for _ in range(2)
        ]
        gradient, residual = random_gradient(rng, size, dtype), random_residual(rng, size)
        result[f"{dtype}/codes"] = [other.codes for other in others]
        result[f"{dtype}/scales"] = [other.scales for other in others]
        result[f"{dtype}/gradient"] = gradient.view(f"u{dtype.itemsize}")
        result[f"{dtype}/residual"] = residual
        again = oracle_reencode(Codec.AUTO, others, gradient, residual)
        result |= parts_of(f"{dtype}/reencoded", again)
    rng = np.random.default_rng(len(DTYPES))
    for bits, replicas in zip(COUNT_BITS, (7, 20, 130), strict=True):
        # Few codes "not finite" (01), or hardly a count would be a number.
        shares = [0.4, 0.1 / replicas, 0.3, 0.3 - 0.1 / replicas]
        codes = [two_bit.pack(row) for row in rng.choice(4, (replicas, 2 * 128), p=shares)]
        result[f"counts{bits}/codes"] = codes
        result[f"counts{bits}/counts"] = two_bit.count(codes, bits)
    return result


# ---- Rows ----------------------------------------------------------------------------

# Rows of one block, of two parts, and so few elements that they do not fill a byte.
SHAPES = [(70_000, 24), (12, 200), (9, 5)]


def rows_of_tables() -> dict[str, Any]:
    """A message of each codec: with residuals, of the small tables, and in two layers without."""
    result: dict[str, Any] = {}
    rng = np.random.default_rng(0)
    slices = []
    for number, (count, columns) in enumerate(SHAPES):
        indices = rng.zipf(1.2, 8) % count
        values = rng.normal(size=(8, columns)).astype(np.float32)
        values[3, 2] = np.nan
        slices.append((values, indices))
        result |= {f"values_{number}": values, f"indices_{number}": indices}
    residuals = [rng.normal(size=shape).astype(np.float32) for shape in SHAPES[1:]]
    for codec in rows.CODECS:
        message, _ = rows.encode(slices, [], SHAPES, codec, 1 if codec == rows.EXACT else 2)
        result[f"{codec}/without"] = np.frombuffer(message, np.uint8)
        if codec != rows.EXACT:
            message, after = rows.encode(slices[1:], residuals, SHAPES[1:], codec)
            result[f"{codec}/with"] = np.frombuffer(message, np.uint8)
            result |= {f"{codec}/residual_{i}": kept for i, kept in enumerate(after)}
    return result | {f"residual_{i}": residual for i, residual in enumerate(residuals)}


# ---- The compact wire ----------------------------------------------------------------

PERIODS = {"columns": [2, 3], "pairs": [1]}


def compact_messages(size: int, threshold: float) -> dict[str, Any]:
    """Messages of each codec, the periods that they are packed with, and their packed form."""
    result: dict[str, Any] = {}
    for codec in COMPACTIBLE:
        for name, periods in PERIODS.items():
            # A matrix with rows of `periods[-1]` blocks: small gradients and some large ones.
            rng, row = np.random.default_rng(CODECS.index(codec)), 128 * periods[-1]
            of_row = rng.laplace(size=row) * rng.laplace(size=row) ** 2
            gradient = 0.1 * np.resize(of_row, size) * (1 + 0.03 * rng.normal(size=size))
            none = np.zeros(size, np.float32)
            encoded = oracle_encode(codec, gradient.astype(np.float32), none, threshold)
            sent = encoded.codes, encoded.scales, num_blocks(size)
            message = compact.make_message(int(codec), *sent, threshold * (codec in FIXED))
            parts = {"message": message, "periods": np.array(periods, np.int32)}
            parts["compact"] = compact.pack(int(codec), message, periods)
            result |= {f"{int(codec)}/{name}/{part}": array for part, array in parts.items()}
    return result


def files() -> dict[str, dict[str, Any]]:
    """The arrays of each file, by its name."""
    return {
        "two_bit": messages(Codec, 3 * 128 + 43),
        "two_bit_shards": two_bit_shards(3 * 128 + 43),
        "one_bit": messages(OneBit, 5 * 128 + 43),
        "levels": messages(Levels, 5 * 128 + 43),
        "rows": rows_of_tables(),
        "compact": compact_messages(150 * 128 - 51, THRESHOLD / 2),
    }


def main() -> None:
    for name, arrays in files().items():
        np.savez_compressed(Path(__file__).parent / f"{name}_golden.npz", **arrays)


if __name__ == "__main__":
    main()
