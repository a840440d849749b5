"""Makes the golden bytes from the oracles: python -m tests.golden.make.

The files were made once. Making them again is a change of a wire, and needs a new version of it,
unless only the choice of codes and scales differs, and not what they mean. Given what a file has,
the functions here take its gradients, messages and residuals, and compute the rest anew.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.custom_ops import cases
from tests.custom_ops.native import COMPACTIBLE, Codec, EightBit, Levels, OneBit, num_blocks
from tests.oracles import compact, rows, two_bit

Arrays = Mapping[str, Any]

COUNT_BITS = (4, 8, 16)


def parts_of(name: str, message: cases.Message) -> dict[str, cases.Array]:
    return {f"{name}/{part}": getattr(message, part) for part in ("codes", "scales", "residual")}


def drawn(
    given: Arrays, rng: np.random.Generator, size: int, dtype: np.dtype[Any]
) -> tuple[cases.Array, cases.Array]:
    """A gradient and a residual."""
    if given:
        return given[f"{dtype}/gradient"].view(dtype), given[f"{dtype}/residual"]
    return cases.random_pair(rng, size, dtype)


def messages(given: Arrays, codecs: Iterable[Any], size: int) -> dict[str, Any]:
    """A message of each codec and dtype, the sum of three, a sum encoded again; counts."""
    result: dict[str, Any] = {}
    for seed, dtype in enumerate(cases.DTYPES):
        gradient, residual = drawn(given, np.random.default_rng(seed), size, dtype)
        bits = np.dtype(f"u{dtype.itemsize}")  # the format of the file has no bfloat16
        result |= {f"{dtype}/gradient": gradient.view(bits), f"{dtype}/residual": residual}
        for codec in codecs:
            name = f"{dtype}/{codec.name.lower()}"
            message = cases.oracle_encode(codec, gradient, residual)
            result |= parts_of(name, message)
            total = cases.oracle_decode_sum(codec, [message] * 3, size, dtype)
            result[f"{name}/sum_of_3"] = total.view(bits)
            again = {OneBit.AUTO: f"{dtype}/reencoded"}
            again |= dict.fromkeys([*Levels, *EightBit], f"{name}/reencoded")
            if codec in again:
                sums = cases.oracle_reencode(codec, [message] * 2, gradient, residual)
                result |= parts_of(again[codec], sums)
            if codec == OneBit.FIXED:
                for width in COUNT_BITS:
                    counts = cases.oracle_count(codec, [message] * 3, width)
                    result[f"{dtype}/counts{width}"] = counts
    return result


def two_bit_shards(given: Arrays, size: int) -> dict[str, Any]:
    """A message that two others were added to, of each dtype; counts of each width."""
    result: dict[str, Any] = {}
    for seed, dtype in enumerate(cases.DTYPES):
        rng = np.random.default_rng(seed)
        if given:
            parts = given[f"{dtype}/codes"], given[f"{dtype}/scales"], 2 * [np.zeros(0)]
            others = [cases.Message(*each) for each in zip(*parts, strict=True)]
        else:
            others = [
                cases.oracle_encode(Codec.AUTO, *drawn({}, rng, size, dtype)) for _ in range(2)
            ]
        gradient, residual = drawn(given, rng, size, dtype)
        result[f"{dtype}/codes"] = [other.codes for other in others]
        result[f"{dtype}/scales"] = [other.scales for other in others]
        result[f"{dtype}/gradient"] = gradient.view(f"u{dtype.itemsize}")
        result[f"{dtype}/residual"] = residual
        again = cases.oracle_reencode(Codec.AUTO, others, gradient, residual)
        result |= parts_of(f"{dtype}/reencoded", again)
    rng = np.random.default_rng(len(cases.DTYPES))
    for bits, replicas in zip(COUNT_BITS, (7, 20, 130), strict=True):
        # Few codes "not finite" (01), or hardly a count would be a number.
        shares = [0.4, 0.1 / replicas, 0.3, 0.3 - 0.1 / replicas]
        codes = [two_bit.pack(row) for row in rng.choice(4, (replicas, 2 * 128), p=shares)]
        codes = given.get(f"counts{bits}/codes", codes)
        result[f"counts{bits}/codes"] = codes
        result[f"counts{bits}/counts"] = two_bit.count(codes, bits)
    return result


# ---- Rows ----------------------------------------------------------------------------

# Rows of one block, of two parts, and so few elements that they do not fill a byte.
SHAPES = [(70_000, 24), (12, 200), (9, 5)]


def rows_of_tables(given: Arrays) -> dict[str, Any]:
    """A message of each codec: with residuals, of the small tables, and in two layers without."""
    result: dict[str, Any] = {}
    rng = np.random.default_rng(0)
    slices = []
    for number, (count, columns) in enumerate(SHAPES):
        indices = rng.zipf(1.2, 8) % count
        values = rng.normal(size=(8, columns)).astype(np.float32)
        values[3, 2] = np.nan
        if given:
            values, indices = given[f"values_{number}"], given[f"indices_{number}"]
        slices.append((values, indices))
        result |= {f"values_{number}": values, f"indices_{number}": indices}
    residuals = [rng.normal(size=shape).astype(np.float32) for shape in SHAPES[1:]]
    residuals = [given.get(f"residual_{i}", residual) for i, residual in enumerate(residuals)]
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


def compact_messages(given: Arrays, size: int, threshold: float) -> dict[str, Any]:
    """Messages of each codec, the periods that they are packed with, and their packed form."""
    result: dict[str, Any] = {}
    for codec in COMPACTIBLE:
        for name, periods in PERIODS.items():
            # A matrix with rows of `periods[-1]` blocks: small gradients and some large ones.
            rng, row = np.random.default_rng(cases.CODECS.index(codec)), 128 * periods[-1]
            of_row = rng.laplace(size=row) * rng.laplace(size=row) ** 2
            gradient = 0.1 * np.resize(of_row, size) * (1 + 0.03 * rng.normal(size=size))
            none = np.zeros(size, np.float32)
            encoded = cases.oracle_encode(codec, gradient.astype(np.float32), none, threshold)
            sent = encoded.codes, encoded.scales, num_blocks(size)
            message = compact.make_message(int(codec), *sent, threshold * (codec in cases.FIXED))
            message = given.get(f"{int(codec)}/{name}/message", message)
            parts = {"message": message, "periods": np.array(periods, np.int32)}
            parts["compact"] = compact.pack(int(codec), message, periods)
            result |= {f"{int(codec)}/{name}/{part}": array for part, array in parts.items()}
    return result


# By a file's name what makes its arrays, from those that it has or, of none, from random ones.
FILES: dict[str, Callable[[Arrays], dict[str, Any]]] = {
    "two_bit": lambda given: messages(given, Codec, 3 * 128 + 43),
    "two_bit_shards": lambda given: two_bit_shards(given, 3 * 128 + 43),
    "one_bit": lambda given: messages(given, OneBit, 5 * 128 + 43),
    "levels": lambda given: messages(given, Levels, 5 * 128 + 43),
    "eight_bit": lambda given: messages(given, EightBit, 2 * 128 + 43),
    "rows": rows_of_tables,
    "compact": lambda given: compact_messages(given, 150 * 128 - 51, cases.THRESHOLD / 2),
}


def path_of(name: str) -> Path:
    return Path(__file__).parent / f"{name}_golden.npz"


def main() -> None:
    for name, make in FILES.items():
        np.savez_compressed(path_of(name), **make({}))


if __name__ == "__main__":
    main()
