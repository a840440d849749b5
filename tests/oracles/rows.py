"""Messages of rows in NumPy: the reference for the ops, written after wire/rows_wire.h.

The oracles of the codecs define the codes of a block and its scale.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tests.oracles import codecs
from tests.oracles.two_bit import BLOCK_SIZE, Array, rounded

EXACT = "exact"
BITS = {"one_bit": 1, "two_bit": 2, "three_bit": 3, "four_bit": 4, "eight_bit": 8}
CODECS = {EXACT: 0, **dict(zip(BITS, (7, 2, 8, 9, 10), strict=True))}  # the wire's numbers
HEADER_BYTES = SECTION_BYTES = 16

# A gradient or a sum: its rows, and the index of each.
Slices = tuple[Array, Array]
Shape = tuple[int, ...]


def encode(
    gradients: Sequence[Slices],
    residuals: Sequence[Array],
    shapes: Sequence[Shape],
    codec: str,
    layers: int = 1,
) -> tuple[bytes, list[Array]]:
    """Returns the message, and the residuals after it."""
    message = np.array([0x5247], "<u2").tobytes() + bytes([1, CODECS[codec]])
    message += np.array([layers], "<u4").tobytes() + np.array([len(shapes)], "<i8").tobytes()
    after = []
    for number, ((values, indices), shape) in enumerate(zip(gradients, shapes, strict=True)):
        rows, unique = merged(values.reshape(len(values), columns_of(shape)), indices)
        residual = residuals[number].reshape(-1, columns_of(shape)).copy() if residuals else None
        scales = codes = b""
        for row, index in zip(rows, unique, strict=True):
            kept = np.zeros_like(row) if residual is None else residual[index]
            of_row, kept = encode_row(row, kept, codec, layers)
            scales, codes = scales + of_row[0], codes + of_row[1]
            if residual is not None:
                residual[index] = kept
        gaps = b"".join(map(varint, np.diff(unique, prepend=-1) - 1))
        section = np.array([len(unique), len(gaps)], "<i8").tobytes() + scales + codes + gaps
        message += section + bytes(-len(section) % 8)
        if residual is not None:
            after.append(residual.reshape(shape))
    return message, after


def merged(values: Array, indices: Array) -> Slices:
    """Sums in float32 of the rows with one index, in their order, and these indices, ascending."""
    unique = np.unique(indices)
    sums = np.zeros((len(unique), values.shape[1]), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for row, index in enumerate(unique):
            first, *others = values[indices == index].astype(np.float32)
            sums[row] = first
            for other in others:
                sums[row] += other
    return sums, unique


def encode_row(
    row: Array, residual: Array, codec: str, layers: int
) -> tuple[tuple[bytes, bytes], Array]:
    """The scales and the codes of a row, and what is left of it."""
    if codec == EXACT:
        return (b"", row.tobytes()), residual
    scales = codes = b""
    for _ in range(layers):
        left = np.zeros_like(residual)
        for part in parts(len(row)):
            packed, scale, left[part] = codecs.encode(BITS[codec], row[part], residual[part])
            scales, codes = scales + scale.tobytes(), codes + cut(packed, part, codec)
        row, residual = np.zeros_like(row), left
    return (scales, codes), residual


def decode(
    messages: Sequence[bytes],
    shapes: Sequence[Shape],
    codec: str,
    layers: int = 1,
    dtype: npt.DTypeLike = np.float32,
) -> list[Slices]:
    """Returns the sum of messages, added in their order, each layer after the other."""
    tables: list[dict[int, Array]] = [{} for _ in shapes]
    for message in messages:
        rest = message[HEADER_BYTES:]
        for table, shape in zip(tables, shapes, strict=True):
            rows, end = rows_of(rest, columns_of(shape), codec, layers)
            for index, value in rows:
                with np.errstate(over="ignore", invalid="ignore"):
                    table[index] = table[index] + value if index in table else value
            rest = rest[end:]
    return [
        (
            rounded(np.array([t[i] for i in sorted(t)], "f").reshape(len(t), *shape[1:]), dtype),
            np.array(sorted(t), np.int64),
        )
        for t, shape in zip(tables, shapes, strict=True)
    ]


def rows_of(
    section: bytes, columns: int, codec: str, layers: int
) -> tuple[list[tuple[int, Array]], int]:
    """Returns each layer of each row, with the row's index, and the length of the section."""
    count, gap_bytes = (int(number) for number in np.frombuffer(section, "<i8", 2))
    pieces = [] if codec == EXACT else parts(columns) * layers
    sizes = [BITS[codec] * -(-(part.stop - part.start) // 8) for part in pieces]
    scales = np.frombuffer(section, "<u2", count * len(pieces), SECTION_BYTES)
    at = SECTION_BYTES + scales.nbytes
    codes_end = at + count * (4 * columns if codec == EXACT else sum(sizes))
    end = -(-(codes_end + gap_bytes) // 8) * 8
    gaps, index = iter(section[codes_end : codes_end + gap_bytes]), -1
    rows = []
    for row in range(count):
        index += read_varint(gaps) + 1
        if codec == EXACT:
            rows.append((index, np.frombuffer(section, "<f4", columns, at + 4 * columns * row)))
            continue
        values = np.zeros((layers, columns), np.float32)
        for number, (part, size) in enumerate(zip(pieces, sizes, strict=True)):
            scale = scales[row * len(pieces) + number : row * len(pieces) + number + 1]
            layer = number // (len(pieces) // layers)
            values[layer, part] = decode_block(section[at : at + size], scale, part, codec)
            at += size
        rows += [(index, value) for value in values]
    assert next(gaps, None) is None
    return rows, end


def columns_of(shape: Shape) -> int:
    return int(np.prod(shape[1:], dtype=np.int64))


def parts(columns: int) -> list[slice]:
    """The equal parts of a row, multiples of 8 elements but for the last one."""
    size = -(-columns // -(-columns // BLOCK_SIZE))
    size = -(-size // 8) * 8
    return [slice(first, min(first + size, columns)) for first in range(0, columns, size)]


def decode_block(sent: bytes, scale: Array, part: slice, codec: str) -> Array:
    """The float32 values of a part, of which those codes were sent that `cut` returns."""
    size, bits = part.stop - part.start, BITS[codec]
    planes = bits if bits in (3, 4) else 1
    codes = np.zeros((planes, bits * BLOCK_SIZE // 8 // planes), np.uint8)
    codes[:, : len(sent) // planes] = np.frombuffer(sent, np.uint8).reshape(planes, -1)
    return codecs.decode(bits, codes.reshape(-1), scale, size)


def cut(codes: Array, part: slice, codec: str) -> bytes:
    """The bytes that are sent of a block's codes: of each plane the first ones."""
    bits, wide = BITS[codec], -(-(part.stop - part.start) // 8)
    planes = codes.reshape(bits, -1)[:, :wide]
    return planes.tobytes() if bits in (3, 4) else codes.tobytes()[: bits * wide]


def varint(number: int) -> bytes:
    """A number in LEB128."""
    low, high = int(number) & 127, int(number) >> 7
    return bytes([low | 128]) + varint(high) if high else bytes([low])


def read_varint(source: Iterator[int]) -> int:
    byte = next(source)
    return byte & 127 | (read_varint(source) << 7 if byte > 127 else 0)
