"""The native ops: loading them and thin wrappers around them.

Most take some of these arguments:

- `gradients`: the tensors of a bucket, at least one, of one dtype (float32, float16 or bfloat16)
  and any shapes.
- `residuals`: an initialized `tf.Variable` (or its handle) for each gradient, of its shape, on its
  device, float32 or, with automatic thresholds, bfloat16 or an int8 vector (`tf_gc.state.stored`).
  Of codes none may be given: what is not sent is dropped.
- `codec` and `threshold`: how codes are made (`tf_gc.ops.codec`). `threshold` is `"auto"`, or a
  number in [2^-126, 2^120) for `"two_bit"`, in (-2^120, 2^120) for `"one_bit"`.
- `messages`: int64 [rows, words], each row a message of the same bucket; or a list of such tensors.
- `like`: tensors with the dtype and the shapes of the results. Their values are not read, and where
  nothing else needs them their buffers become the results'.

An empty list, another number of residuals than of gradients, and a threshold that is another string
raise `ValueError`. `tf.errors.InvalidArgumentError` is raised before anything has changed: if no
codec has that name, a number is out of range, a residual does not fit its gradient or occurs twice,
or a message has another length, wire version, codec, threshold or number of blocks.

On GPUs an op only starts its work and does not wait for it, so two things differ from the CPU. A
message with a wrong header gives NaN instead of an error, although lengths are checked as on the
CPU. And the ops do not count how much a fixed threshold sends. The ops for rows wait for the GPU
once, and raise errors as on the CPU. `pack`, `unpack` and the ops for factors have no kernels for
GPUs.
"""

# mypy: implicit-reexport
# ruff: noqa: F401

from tf_gc.ops import _loader
from tf_gc.ops.codec import decode, encode, two_bit_decode, two_bit_encode
from tf_gc.ops.compact import pack, periods, unpack
from tf_gc.ops.deadline import within
from tf_gc.ops.factors import decode_factors, encode_factors, project_factors
from tf_gc.ops.library import (
    codecs_by_bits,
    is_compactible,
    max_magnitude,
    message_bits,
    most_rank,
    sum_codecs,
)
from tf_gc.ops.recorder import Recorder, Series, count_sent
from tf_gc.ops.rows import decode_rows, encode_rows
from tf_gc.ops.shards import count, decode_shards, reencode

# A library that does not fit TensorFlow fails when tf_gc is imported, not in the first step.
_loader.load()
