"""No message, however broken, makes the built library read or write beside what it was given.

A byte beside that is in a page that nobody may touch, and kills the process. `make sanitize` looks
for more, and for longer, in a library that it compiles.
"""

import ctypes
import faulthandler
import mmap
import os
from typing import Any

import numpy as np
import tensorflow as tf

from tests.custom_ops.cases import Array
from tests.custom_ops.native import Library
from tests.fork_server import FORK_SERVER
from tests.sanitize import attacks
from tf_gc.ops import _loader

MAX_BYTES = 1 << 18


class Fences(attacks.Memory):
    """Gives memory between two pages that nobody may touch, at one of them."""

    def __init__(self, rng: attacks.Rng) -> None:
        super().__init__(rng)
        self._given = 0
        self._spaces: list[Array] = []
        self.at_end = False

    def begin(self, case: str) -> None:
        """Takes all memory back as well."""
        self._given = 0
        self.at_end = bool(self.rng.integers(2))
        super().begin(f"{case}, at the {'end' if self.at_end else 'beginning'}")

    def put(self, data: Array) -> Array:
        """A copy that touches the page."""
        if self._given == len(self._spaces):
            self._spaces.append(_fenced())
        space = self._spaces[self._given]
        self._given += 1
        start = space.size - data.nbytes if self.at_end else 0
        result = space[start : start + data.nbytes]
        result[:] = data.reshape(-1).view(np.uint8)
        return result.view(data.dtype).reshape(data.shape)

    def again(self, data: Array) -> Array:
        """A copy in the memory that was given first."""
        given, self._given = self._given, 0
        result = self.put(data)
        self._given = given
        return result

    def tensor(self, data: Array) -> Any:
        """A tensor in such memory, which has to be aligned as TensorFlow wants it."""
        array = self.again(data)
        result = tf.experimental.dlpack.from_dlpack(array.__dlpack__())
        if array.size:
            assert np.asarray(memoryview(result)).ctypes.data == array.ctypes.data
        return result


def _fenced() -> Array:
    """MAX_BYTES bytes between two pages that nobody may touch."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    space = np.frombuffer(mmap.mmap(-1, MAX_BYTES + 2 * mmap.PAGESIZE), np.uint8)
    for start in (0, space.size - mmap.PAGESIZE):
        failed = libc.mprotect(space.ctypes.data + start, mmap.PAGESIZE, 0)
        assert not failed, os.strerror(ctypes.get_errno())
    return space[mmap.PAGESIZE : -mmap.PAGESIZE]


def attack(*steps: str) -> None:
    """Attacks the library in each way, `steps` times, with each instruction set."""
    faulthandler.enable()
    _loader.load()
    library = Library(_loader.library_path())
    rng = np.random.default_rng(1)
    fences = Fences(rng)
    for target in library.supported_targets():
        assert library.force_target(target)
        for way, times in zip(attacks.WAYS, steps, strict=True):
            for _ in range(int(times)):
                way(library, rng, fences)
    os.ftruncate(1, 0)


def test_nothing_is_read_or_written_beside_messages() -> None:
    FORK_SERVER.output(f"{__name__}:attack", "300", "80", "40", "60", "5", "20")
