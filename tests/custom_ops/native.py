"""Drives the C interface of the codec library."""

import ctypes
import enum
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

BLOCK_SIZE = 128
DTYPES = {np.dtype(t): i for i, t in enumerate(("f4", "f2", ml_dtypes.bfloat16, "i1"))}


class Codec(enum.IntEnum):  # of two bits
    FIXED = 1
    AUTO = 2


class OneBit(enum.IntEnum):
    FIXED = 6
    AUTO = 7


class Levels(enum.IntEnum):
    THREE_BIT = 8
    FOUR_BIT = 9


class EightBit(enum.IntEnum):
    AUTO = 10


AnyCodec = Codec | OneBit | Levels | EightBit

# The bits of an element's code.
CODE_BITS: dict[AnyCodec, int] = {
    Codec.FIXED: 2,
    Codec.AUTO: 2,
    OneBit.FIXED: 1,
    OneBit.AUTO: 1,
    Levels.THREE_BIT: 3,
    Levels.FOUR_BIT: 4,
    EightBit.AUTO: 8,
}

# Their names in the ops.
NAMES: dict[AnyCodec, str] = {
    codec: {1: "one_bit", 2: "two_bit", 3: "three_bit", 4: "four_bit", 8: "eight_bit"}[bits]
    for codec, bits in CODE_BITS.items()
}

# The codecs whose messages may be packed.
COMPACTIBLE: list[AnyCodec] = [*Codec, *Levels, *EightBit]


class Target(enum.IntEnum):
    SCALAR = 0
    AVX2 = 1
    AVX512 = 2
    NEON = 3


def code_bytes(codec: AnyCodec) -> int:
    return BLOCK_SIZE * CODE_BITS[codec] // 8


def has_scales(codec: AnyCodec) -> bool:
    return codec != Codec.FIXED


def num_blocks(size: int) -> int:
    return -(-size // BLOCK_SIZE)


# A task of packing or unpacking, and what runs all tasks: (tasks, task, context).
_Task = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
_RunTasks = ctypes.CFUNCTYPE(None, ctypes.c_int64, _Task, ctypes.c_void_p)
RunTasks = Callable[[int, Callable[[int], None]], None]


def _callback(run: RunTasks | None) -> Any:
    """The callback with which the library runs tasks, null for None."""

    def call(tasks: int, task: Callable[[Any, int], None], context: Any) -> None:
        run(tasks, lambda index: task(context, index))

    return _RunTasks() if run is None else _RunTasks(call)


def _value(argument: Any) -> Any:
    """An argument of C: of an array its address, of a list the addresses of its arrays."""
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(argument.ctypes.data)
    if isinstance(argument, list | tuple):
        return (ctypes.c_void_p * len(argument))(*(array.ctypes.data for array in argument))
    return argument


# Of the functions: the result and the parameters.
SIGNATURES = {
    "encode": "iiipppnfppi",
    "decode_sum": "iiippnnfp",
    "reencode": "iiiippnpppnppi",
    "count": "iippnnip",
    "decode_counts": "iipinfp",
    "pack_capacity": "nin",
    "pack": "ninpippr",
    "unpack": "iinpnpr",
    "block_bytes": "iin",
    "codec": "isi",
    "codec_name": "si",
    "float_mode": "u",
    "set_float_mode": "-u",
}
KINDS = {
    **{"i": ctypes.c_int, "n": ctypes.c_int64, "u": ctypes.c_uint64, "f": ctypes.c_float},
    **{"p": ctypes.c_void_p, "s": ctypes.c_char_p, "r": _RunTasks, "-": None},
}


def _dtype_of(residual: Array | None) -> int:
    return DTYPES[np.dtype(np.float32) if residual is None else residual.dtype]


class Library:
    """The codec library. Arrays are contiguous; outputs are written in place."""

    # Of MXCSR: to flush to zero, to take subnormal numbers for zero, both, and to round up.
    float_modes: tuple[int, ...] = (0x8000, 0x0040, 0x8040, 0x4000)

    def __init__(self, path: Path) -> None:
        self._c = ctypes.CDLL(str(path))
        for name, (result, *parameters) in SIGNATURES.items():
            function = getattr(self._c, f"tf_gc_{name}")
            function.restype = KINDS[result]
            function.argtypes = [KINDS[kind] for kind in parameters]

    def call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._c, f"tf_gc_{name}")(*map(_value, arguments))

    def supported_targets(self) -> list[Target]:
        active = self.active_target()
        supported = [target for target in Target if self.force_target(target)]
        self.force_target(active)
        return supported

    def active_target(self) -> Target:
        return Target(self.call("active_target"))

    def force_target(self, target: int) -> bool:
        return bool(self.call("force_target", target))

    def encode(self, *arguments: Any) -> None:
        """Encodes, with arguments as `encode_arguments`."""
        assert self.call("encode", *self.encode_arguments(*arguments))

    @staticmethod
    def encode_arguments(
        codec: AnyCodec,
        gradient: Array,
        residual_in: Array | None,
        residual_out: Array | None,
        codes: Array,
        scales: Array | None = None,
        threshold: float = 0.0,
    ) -> tuple[Any, ...]:
        """The arguments of the C function."""
        values = DTYPES[gradient.dtype], gradient, residual_in, residual_out, gradient.size
        return codec, *values, threshold, codes, scales, _dtype_of(residual_in)

    def decode_sum(self, *arguments: Any) -> None:
        """Decodes and adds messages, with arguments as `decode_arguments`."""
        assert self.call("decode_sum", *self.decode_arguments(*arguments))

    @staticmethod
    def decode_arguments(
        codec: AnyCodec,
        codes: Sequence[Array],
        scales: Sequence[Array],
        result: Array,
        threshold: float = 0.0,
    ) -> tuple[Any, ...]:
        """The arguments of the C function."""
        messages = codes, scales, len(codes)
        return codec, DTYPES[result.dtype], *messages, result.size, threshold, result

    def reencode(
        self,
        codec: AnyCodec,
        sum_codec: AnyCodec,
        codes: Sequence[Array],
        scales: Sequence[Array],
        gradient: Array,
        residual_in: Array | None,
        residual_out: Array | None,
        sum_codes: Array,
        sum_scales: Array,
    ) -> bool:
        """False if sums of messages of the codec are not encoded by the other."""
        messages = DTYPES[gradient.dtype], codes, scales, len(codes)
        values = gradient, residual_in, residual_out, gradient.size
        of_sum = sum_codes, sum_scales, _dtype_of(residual_in)
        return bool(self.call("reencode", codec, sum_codec, *messages, *values, *of_sum))

    def count(
        self,
        codec: AnyCodec,
        codes: Sequence[Array],
        scales: Sequence[Array],
        bits: int,
        counts: Array,
    ) -> bool:
        """False if no counts have `bits` bits, or messages of the codec are not counted."""
        blocks = codes[0].size // code_bytes(codec)
        return bool(self.call("count", codec, codes, scales, len(codes), blocks, bits, counts))

    def decode_counts(self, counts: Array, bits: int, result: Array, unit: float) -> bool:
        """False if no counts have `bits` bits."""
        arguments = DTYPES[result.dtype], counts, bits, result.size, unit, result
        return bool(self.call("decode_counts", *arguments))

    def pack_capacity(self, codec: int, blocks: int) -> int:
        """The bytes that `pack` may write, 0 if messages of the codec are not packed."""
        return int(self.call("pack_capacity", codec, blocks))

    def pack(
        self,
        codec: int,
        blocks: int,
        message: Array,
        compact: Array,
        run: RunTasks | None = None,
        periods: Sequence[int] = (),
    ) -> int:
        """Packs with tasks that `run` runs. Returns the bytes, 0 if it refuses to."""
        of_periods = np.array(periods, np.int32), len(periods)
        arguments = codec, blocks, *of_periods, message, compact, _callback(run)
        return int(self.call("pack", *arguments))

    def unpack(
        self, codec: int, blocks: int, compact: Array, message: Array, run: RunTasks | None = None
    ) -> bool:
        """False if the bytes are no message."""
        arguments = codec, blocks, compact, compact.nbytes, message, _callback(run)
        return bool(self.call("unpack", *arguments))

    def results_for(self, codec: int) -> dict[str, float]:
        """The result of each function that takes a codec, for this one and no elements."""
        null = (ctypes.c_void_p * 1)()
        arguments: dict[str, tuple[Any, ...]] = {
            "encode": (0, None, None, None, 0, 0.5, None, None, 0),
            "decode_sum": (0, null, null, 1, 0, 0.5, None),
            "reencode": (codec, 0, None, None, 0, None, None, None, 0, None, None, 0),
            "count": (null, null, 1, 0, 4, None),
            "block_bytes": (1,),
        }
        return {name: self.call(name, codec, *more) for name, more in arguments.items()}
