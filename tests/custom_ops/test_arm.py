"""Tests of the other files here with the library for Arm, in an emulator."""

import itertools
import struct
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import numpy as np
import pytest

from tests.cases import matrix
from tests.custom_ops import cases, native
from tests.custom_ops.native import Array, Library, Target
from tests.custom_ops.test_by_hand import *  # noqa: F403
from tests.custom_ops.test_compact import *  # noqa: F403
from tests.custom_ops.test_compact_runs import *  # noqa: F403
from tests.custom_ops.test_factors import assert_same_but_for_nans, random_matrices
from tests.custom_ops.test_parity import *  # noqa: F403
from tests.custom_ops.test_residuals import *  # noqa: F403
from tests.custom_ops.test_shards import *  # noqa: F403
from tests.oracles import factors

PROGRAM = Path("build/arm")  # arm.cc with the library
pytestmark = [
    matrix,
    pytest.mark.skipif(not PROGRAM.exists(), reason="`make build/arm` has not found what it needs"),
]
COMMAND = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", PROGRAM]
MEMORY, SIZE = 1 << 36, 1 << 30  # what arm.cc and this process share, and where it is there
SIGNATURES = {**native.SIGNATURES, "factors": "iipppppppp"}


class Emulated(Library):
    """The library, called by another process."""

    float_modes = (1 << 24, 1 << 22)  # of FPCR: to flush to zero, to round up

    def __init__(self, file: Path) -> None:
        self._memory = np.memmap(file, np.uint8, "w+", shape=SIZE)
        self.process = Popen([*COMMAND, file], stdin=PIPE, stdout=PIPE)

    def call(self, name: str, *arguments: Any) -> Any:
        result, *kinds = [*SIGNATURES.get(name, "ii")]
        words, real = [], 0.0
        copies: dict[tuple[int, int], tuple[int, Array]] = {}
        end = 0  # of the copies

        def address(array: Array) -> int:
            """Where a copy of the array is, with guard bytes before it."""
            nonlocal end
            key = array.ctypes.data, array.nbytes
            if key not in copies:
                start = (end + 127) // 64 * 64 + array.ctypes.data % 64
                self._memory[end:start] = 0xA5
                end = start + array.nbytes
                self._memory[start:end] = np.frombuffer(array.tobytes(), np.uint8)
                copies[key] = start, array
            return MEMORY + copies[key][0]

        for kind, argument in zip(kinds, arguments, strict=False):
            if kind == "f":
                real = argument
            elif isinstance(argument, list | tuple):
                words.append(address(np.array([address(array) for array in argument])))
            elif kind == "p" and argument is not None:
                words.append(address(argument))
            else:  # Tasks run one after the other.
                words.append(0 if argument is None or kind == "r" else int(argument))
        address(np.zeros(0))
        sent = f"tf_gc_{name}".encode(), *words, *[0] * (14 - len(words)), real
        self.process.stdin.write(struct.pack("32s14qf4x", *sent))
        self.process.stdin.flush()
        (found,) = struct.unpack("q", self.process.stdout.read(8))
        end = 0
        for start, array in copies.values():
            assert (self._memory[end:start] == 0xA5).all()
            end = start + array.nbytes
            if array.flags.writeable:
                array[...] = self._memory[start:end].view(array.dtype).reshape(array.shape)
        of_result: Any = native.KINDS[result]
        return of_result and of_result(found).value


@pytest.fixture(scope="module")
def _library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    library = Emulated(tmp_path_factory.mktemp("arm") / "memory")
    assert library.supported_targets() == [Target.SCALAR, Target.NEON]
    yield library
    library.process.kill()
    library.process.wait()


@pytest.mark.parametrize("rank", [1, 2, 5])
@cases.each_dtype
def test_factors(on_each_target: cases.Targets, rank: int, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(rank)
    shapes = [(40, 33), (16, 64), (3, 5), (1, 7), (50, 1), (130, 200), (10, 4100)]
    for shape, bad in itertools.product(shapes, (0, 0.002)):
        (gradient,) = random_matrices(rng, [shape], dtype, bad)
        residual = rng.normal(size=shape).astype(np.float32)
        basis, q = (rng.normal(size=(rank, n)).astype(np.float32) for n in shape)
        next_q, rest = factors.encode(gradient, residual, basis)
        with np.errstate(over="ignore", invalid="ignore"):
            product = factors.product(basis, next_q).astype(dtype)
        expected = [rest, factors.project(gradient, residual, q), next_q, product]
        for library in on_each_target():
            kept, *others = found = [residual.copy(), *map(np.empty_like, expected[1:])]
            of_matrix = native.DTYPES[dtype], np.array([*shape, rank]), gradient
            library.call("factors", *of_matrix, kept, q, others[0], basis, *others[1:])
            assert_same_but_for_nans(found, expected)
