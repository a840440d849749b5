"""Messages for codec.py: of synthetic gradients, and of real training."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.custom_ops import native
from tests.custom_ops.native import COMPACTIBLE, AnyCodec, Library
from tests.oracles import compact as oracle_compact

Array = npt.NDArray[Any]

STEPS = 20  # of training, before a message is taken
THRESHOLD = 3.0  # of the fixed codec; about one code in ten is not zero then


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
    """Returns a message of gradients with heavy tails, whose mean is not zero.

    Args:
      library: encodes them.
      codec: the message's codec.
      size: the number of elements.

    Returns:
      The message with its header, uint8, one-dimensional.
    """
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
    """Reads messages of one model, a file for each codec, which `wire_bits.py --messages` wrote.

    Returns:
      The model's name, how many elements a message has, and the messages by their codec, uint8,
      one-dimensional.

    Raises:
      SystemExit: if they are of several models, two are of one codec, or one has no compact form.
    """
    codecs: dict[int, AnyCodec] = {int(codec): codec for codec in COMPACTIBLE}
    messages, kinds = {}, set()
    for path in paths:
        message = np.load(path).view(np.uint8).ravel()
        _, _, number, _, blocks = oracle_compact.HEADER.unpack_from(message)
        if number not in codecs or codecs[number] in messages:
            raise SystemExit(f"{path}: codec {number} has no compact form, or a file already")
        messages[codecs[number]] = message
        kinds.add((path.stem.split("_")[0], blocks * native.BLOCK_SIZE))
    if len(kinds) != 1:
        raise SystemExit(f"messages are of one model and of one size, got {sorted(kinds)}")
    name, size = kinds.pop()
    return name, size, messages
