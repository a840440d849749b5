"""Messages for codec.py: of synthetic gradients, and of real training."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests import oracle_compact
from tests.custom_ops import native
from tests.custom_ops.native import COMPACTIBLE, AnyCodec, Library

Array = npt.NDArray[Any]

STEPS = 20  # of training, before a message is taken
THRESHOLD = 3.0


def aligned(size: int, dtype: npt.DTypeLike) -> Array:
    """Zeros that start at a cache line and are in memory already."""
    itemsize = np.dtype(dtype).itemsize
    raw = np.zeros(size * itemsize + 64, np.uint8)
    raw[:] = 1
    start = -raw.ctypes.data % 64
    array: Array = raw[start : start + size * itemsize].view(dtype)
    array[:] = 0
    return array


class Messages:
    """Memory for messages of a codec."""

    def __init__(self, codec: AnyCodec, blocks: int, count: int) -> None:
        self.codes = [aligned(blocks * native.code_bytes(codec), np.uint8) for _ in range(count)]
        self.scales = [aligned(blocks, np.uint16) for _ in range(count)]
        scale_bytes = self.scales[0].nbytes if native.has_scales(codec) else 0
        self.size = self.codes[0].nbytes + scale_bytes  # of one


def message_of_laplace(library: Library, codec: AnyCodec, size: int) -> Array:
    """Returns a message of gradients with heavy tails, whose mean is not zero."""
    blocks = native.num_blocks(size)
    rng = np.random.default_rng(1)
    # Each step has the same mean, and noise from another place of one array.
    mean = 0.3 * rng.laplace(size=1 << 20).astype(np.float32)
    noise = rng.laplace(size=1 << 21).astype(np.float32)
    gradient, residual = np.zeros((2, size), np.float32)
    own = Messages(codec, blocks, 1)
    for _ in range(STEPS):
        for start in range(0, size, mean.size):
            part = gradient[start : start + mean.size]
            offset = int(rng.integers(mean.size))
            np.add(mean[: part.size], noise[offset : offset + part.size], out=part)
        arguments = (gradient, residual, residual, own.codes[0], own.scales[0], THRESHOLD)
        library.encode(codec, *arguments)
    scales = own.scales[0] if native.has_scales(codec) else own.scales[0][:0]
    return oracle_compact.make_message(int(codec), own.codes[0], scales, blocks)


def blocks_of(message: Array) -> int:
    """Returns how many blocks a message has."""
    return int(oracle_compact.HEADER.unpack_from(message)[-1])


def read_messages(paths: list[Path]) -> tuple[str, int, dict[AnyCodec, Array]]:
    """Returns the model that messages are of, their elements, and the messages by their codec."""
    codecs: dict[int, AnyCodec] = {int(codec): codec for codec in COMPACTIBLE}
    messages, sizes, names = {}, set(), set()
    for path in paths:
        message = np.load(path).view(np.uint8).ravel()
        _, _, number, _, blocks = oracle_compact.HEADER.unpack_from(message)
        messages[codecs[number]] = message
        sizes.add(blocks * native.BLOCK_SIZE)
        names.add(path.stem.split("_")[0])
    if len(sizes) != 1:
        raise SystemExit(f"messages of one model have one size: {', '.join(map(str, paths))}")
    return " ".join(sorted(names)), sizes.pop(), messages
