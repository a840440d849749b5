"""Messages of synthetic gradients, for codec.py."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tests.custom_ops import native
from tests.custom_ops.native import AnyCodec, Library
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
