"""The native ops: loading them and thin wrappers around them.

On GPUs an op only starts its work and does not wait for it, so two things differ from the CPU. A
message with a wrong header gives NaN instead of an error, although lengths are checked as on the
CPU. And the ops do not count how much a fixed threshold sends.
"""

from tf_gc.ops import _library
from tf_gc.ops.one_bit import (
    one_bit_count,
    one_bit_decode,
    one_bit_decode_shards,
    one_bit_encode,
    one_bit_message_bits,
    one_bit_reencode,
)
from tf_gc.ops.two_bit import two_bit_decode, two_bit_encode
from tf_gc.ops.two_bit_shards import (
    two_bit_count,
    two_bit_decode_shards,
    two_bit_message_bits,
    two_bit_reencode,
)

# A library that does not fit TensorFlow fails when tf_gc is imported, not in the first step.
_library.load()

__all__ = [
    "one_bit_count",
    "one_bit_decode",
    "one_bit_decode_shards",
    "one_bit_encode",
    "one_bit_message_bits",
    "one_bit_reencode",
    "two_bit_count",
    "two_bit_decode",
    "two_bit_decode_shards",
    "two_bit_encode",
    "two_bit_message_bits",
    "two_bit_reencode",
]
