"""The codec library, with functions that time its calls."""

import ctypes
from pathlib import Path
from typing import Any

from tests.custom_ops import native
from tests.custom_ops.native import Array

SOURCE = Path(__file__).with_name("codec_timing.cc")


class Library(native.Library):
    """The library and codec_timing.cc; functions return the seconds of all repetitions."""

    def __init__(self, directory: Path) -> None:
        """Builds and loads the library."""
        super().__init__(native.build(directory, SOURCE))
        pointer, size = ctypes.c_void_p, ctypes.c_int64
        for name, types in {
            "encode": self._c.tf_gc_encode.argtypes,
            "decode_sum": self._c.tf_gc_decode_sum.argtypes,
            "memcpy": [pointer, pointer, size],
        }.items():
            function = getattr(self._c, f"tf_gc_time_{name}")
            function.argtypes, function.restype = [ctypes.c_int, *types], ctypes.c_double

    def time_encode(self, repetitions: int, *arguments: Any, **more: Any) -> float:
        """Times `encode`."""
        return self.call("time_encode", repetitions, *self.encode_arguments(*arguments, **more))

    def time_decode_sum(self, repetitions: int, *arguments: Any, **more: Any) -> float:
        """Times `decode_sum`."""
        values = self.decode_arguments(*arguments, **more)
        return self.call("time_decode_sum", repetitions, *values)

    def time_memcpy(self, repetitions: int, to: Array, source: Array) -> float:
        """Times copies of all of an array."""
        return self.call("time_memcpy", repetitions, to, source, source.nbytes)
