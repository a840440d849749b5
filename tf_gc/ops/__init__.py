"""The native ops: loading them and thin wrappers around them.

On GPUs an op only starts its work and does not wait for it, so two things differ from the CPU. A
message with a wrong header gives NaN instead of an error, although lengths are checked as on the
CPU. And the ops do not count how much a fixed threshold sends. `pack`, `unpack` and the ops for
rows and factors have no kernels for GPUs.
"""

from tf_gc.ops import _loader
from tf_gc.ops.codec import decode, encode
from tf_gc.ops.compact import pack, periods, unpack
from tf_gc.ops.deadline import within
from tf_gc.ops.factors import decode_factors, encode_factors, project_factors
from tf_gc.ops.library import is_compactible, message_bits
from tf_gc.ops.recorder import Recorder, Series, count_sent
from tf_gc.ops.rows import decode_rows, encode_rows
from tf_gc.ops.shards import count, decode_shards, reencode
from tf_gc.ops.two_bit import two_bit_decode, two_bit_encode

# A library that does not fit TensorFlow fails when tf_gc is imported, not in the first step.
_loader.load()

__all__ = [
    "Recorder",
    "Series",
    "count",
    "count_sent",
    "decode",
    "decode_factors",
    "decode_rows",
    "decode_shards",
    "encode",
    "encode_factors",
    "encode_rows",
    "is_compactible",
    "message_bits",
    "pack",
    "periods",
    "project_factors",
    "reencode",
    "two_bit_decode",
    "two_bit_encode",
    "unpack",
    "within",
]
