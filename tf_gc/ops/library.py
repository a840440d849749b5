"""Asks the native library for its wire format, and for what it was built."""

import ctypes
import functools

from tf_gc import _compat
from tf_gc.ops import _loader
from tf_gc.ops._arguments import is_automatic


@functools.cache
def functions() -> ctypes.CDLL:
    """Returns the functions of custom_ops/lib/c_api."""
    library = ctypes.CDLL(str(_loader.library_path()))
    number = ctypes.c_int64
    for name, result, arguments in (
        ("codec_name", ctypes.c_char_p, [ctypes.c_int]),
        ("codec", ctypes.c_int, [ctypes.c_char_p, ctypes.c_int]),
        ("block_bytes", ctypes.c_int, [ctypes.c_int, number]),
        ("max_magnitude", ctypes.c_float, []),
        ("recorder_make", number, []),
        ("recorder_free", None, [number]),
        ("recorder_measure_every", None, [number, number]),
        ("recorder_forget", None, [number, number]),
        ("recorder_read", number, [number, number, ctypes.c_int, number, ctypes.c_void_p]),
    ):
        function = getattr(library, f"tf_gc_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def wire_version() -> int:
    """Returns the version of the wire format that the native ops speak."""
    return int(functions().tf_gc_wire_version())


def compact_version() -> int:
    """Returns the version of the compact wire."""
    return int(functions().tf_gc_compact_version())


def block_size() -> int:
    """Returns how many elements a block has."""
    return int(functions().tf_gc_block_size())


def max_magnitude() -> float:
    """Returns the magnitude, 2^120, from which on an element counts as not finite."""
    return float(functions().tf_gc_max_magnitude())


def most_rank() -> int:
    """Returns how many columns a factor of `tf_gc.ops.project_factors` has at most."""
    return int(functions().tf_gc_most_rank())


def codec_names() -> list[str]:
    """Returns the values of the ops' attribute `codec`."""
    names: list[str] = []
    while name := functions().tf_gc_codec_name(len(names)):
        names.append(name.decode())
    return names


def codec_number(codec: str, automatic: bool) -> int:
    """Returns the number of a codec in the headers of messages. ValueError if there is none."""
    found = int(functions().tf_gc_codec(codec.encode(), automatic))
    if found == 0 and codec in codec_names():
        raise ValueError(f"codec {codec!r} has automatic scales only, and no fixed threshold")
    if found == 0:
        raise ValueError(f"codec must be one of {codec_names()}, got {codec!r}")
    return found


def sum_codecs(codec: str) -> list[str]:
    """Returns what `tf_gc.ops.reencode` may encode sums with: the same codec and a finer one."""
    number = codec_number(codec, automatic=True)
    return [
        name
        for name in codec_names()
        if functions().tf_gc_sums_in(number, codec_number(name, automatic=True))
    ]


def message_bits(replicas: int, codec: str = "two_bit", threshold: float | str = "auto") -> float:
    """Returns how many bits an element takes in a message with a sum over `replicas` replicas.

    With 1, in those of `encode`. ValueError if there is no such codec, or there are no replicas or,
    with a fixed threshold, more than 32767.
    """
    number = codec_number(codec, is_automatic(threshold))
    size = int(functions().tf_gc_block_bytes(number, replicas))
    if size == 0:
        raise ValueError(f"no message sums up {replicas} replicas with threshold {threshold!r}")
    return size * 8 / block_size()


def codecs_by_bits() -> dict[int, str]:
    """Returns the codecs with automatic scales by the bits of a code, in rising order."""
    return dict(sorted((int(message_bits(1, name)), name) for name in codec_names()))


def is_compactible(codec: str, threshold: float | str) -> bool:
    """Returns whether a codec's messages have a compact form (`tf_gc.ops.pack`).

    ValueError if there is no such codec, or it does not take that threshold.
    """
    number = codec_number(codec, is_automatic(threshold))
    return bool(functions().tf_gc_is_compactible(number))


def device_types() -> frozenset[str]:
    """Returns the device types ("CPU", "GPU") that the native ops were built for."""
    kernels = _compat.registered_kernels("TfGc>Encode").kernel
    return frozenset(kernel.device_type for kernel in kernels)


def cuda_versions() -> tuple[int, int] | None:
    """Returns the CUDA versions of the ops' runtime and of this machine's driver.

    Each version is 1000 · major + 10 · minor. The driver's is 0 if there is no driver. Returns
    `None` if the native ops were not built for GPUs.
    """
    library = functions()
    if not hasattr(library, "tf_gc_cuda_versions"):
        return None
    runtime, driver = ctypes.c_int(), ctypes.c_int()
    library.tf_gc_cuda_versions(ctypes.byref(runtime), ctypes.byref(driver))
    return runtime.value, driver.value
