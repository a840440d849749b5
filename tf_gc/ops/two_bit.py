"""Wrappers of the two-bit ops: lists in, lists out, `"auto"` spelled out."""

import ctypes
from collections.abc import Sequence

import tensorflow as tf

from tf_gc import _compat
from tf_gc.ops import _library
from tf_gc.ops._messages import NO_SHARD, as_list, handles, non_empty

# The value of the ops' attribute `threshold` that stands for "auto".
_AUTO = 0.0


def two_bit_encode(
    gradients: Sequence[tf.Tensor],
    residuals: Sequence[tf.Variable],
    threshold: float | str = "auto",
    shards: int = 1,
    skip: int | None = None,
) -> tf.Tensor:
    """Encodes a bucket of gradients in two bits an element and updates its residuals.

    For each element, with `p = gradient + residual`, one of `+s`, `-s` and `0` is sent and
    the residual becomes `p` minus what was sent (error feedback, as in MXNet's gradient
    compression). With a fixed threshold, `s` is the threshold, and an element is sent where its
    `|p|` reaches `s`. With `"auto"`, each block of 128 consecutive elements of a flattened tensor
    has its own `s`: two thirds of the block's largest `|p|`, rounded to bfloat16. An element is
    then sent where its `|p|` reaches half of `s`. That is the uniform quantizer with three levels
    (scaled by the largest element, as in TernGrad, Wen et al. 2017, but rounding to the nearest
    level). An element that is not finite, or not below 2^120 in magnitude, is marked as not finite
    and keeps its residual.

    Args:
      gradients: tensors of one dtype (float32, float16 or bfloat16) and any shapes; at least
        one.
      residuals: one initialized float32 `tf.Variable` (or its handle) for each gradient, of
        its shape, on its device.
      threshold: `"auto"`, or a number in [2^-126, 2^120).
      shards: how many shards of whole blocks the bucket is cut into, each with a message of its
        own. All shards have the same length: the bucket's blocks divided by `shards`, rounded up.
      skip: the number of a shard that is not encoded, with `"auto"` only. Its message decodes to
        zeros, and its residuals stay as they are.

    Returns:
      The messages: int64, shape [shards, words].

    Raises:
      ValueError: if the lists are empty or differ in length.
      tf.errors.InvalidArgumentError: if a residual does not fit its gradient or occurs twice,
        or the threshold or a number is out of range.
    """
    return _library.load().tf_gc_two_bit_encode(
        gradients=non_empty(gradients, "gradients"),
        residuals=handles(residuals, gradients),
        threshold=attribute(threshold),
        shards=shards,
        skip=NO_SHARD if skip is None else skip,
    )


def two_bit_decode(
    messages: tf.Tensor | Sequence[tf.Tensor],
    like: Sequence[tf.Tensor],
    threshold: float | str = "auto",
) -> list[tf.Tensor]:
    """Decodes the messages of all replicas for one bucket and adds them in their order.

    Args:
      messages: int64, shape [rows, words] (or a list of such tensors): the messages that
        `two_bit_encode` made of the same bucket, a row for each replica.
      like: tensors with the dtype and the shapes of the bucket's gradients. Their values are
        not read, and where nothing else needs them their buffers become the results'.
      threshold: the threshold that the messages were encoded with.

    Returns:
      The sums, with the dtype and the shapes of `like`. An element is NaN if any replica
      marked it as not finite.

    Raises:
      ValueError: if a list is empty.
      tf.errors.InvalidArgumentError: if a message has another length, wire version, codec,
        threshold or number of blocks.
    """
    return _library.load().tf_gc_two_bit_decode(
        messages=as_list(messages),
        like=non_empty(like, "like"),
        threshold=attribute(threshold),
    )


def wire_version() -> int:
    """Returns the version of the wire format that the native ops speak."""
    return int(ctypes.CDLL(str(_library.library_path())).tf_gc_wire_version())


def device_types() -> frozenset[str]:
    """Returns the device types ("CPU", "GPU") that the native ops were built for."""
    _library.load()
    kernels = _compat.registered_kernels("TfGc>TwoBitEncode").kernel
    return frozenset(kernel.device_type for kernel in kernels)


def cuda_versions() -> tuple[int, int] | None:
    """Returns the CUDA versions of the ops' runtime and of this machine's driver.

    Each version is 1000 · major + 10 · minor. The driver's is 0 if there is no driver. Returns
    `None` if the native ops were not built for GPUs.
    """
    library = ctypes.CDLL(str(_library.library_path()))
    if not hasattr(library, "tf_gc_cuda_versions"):
        return None
    runtime, driver = ctypes.c_int(), ctypes.c_int()
    library.tf_gc_cuda_versions(ctypes.byref(runtime), ctypes.byref(driver))
    return runtime.value, driver.value


def attribute(threshold: float | str) -> float:
    """Returns the ops' attribute for a threshold. ValueError for 0 and for other strings."""
    if threshold == "auto":
        return _AUTO
    if isinstance(threshold, str) or threshold == _AUTO:
        raise ValueError(f'threshold must be "auto" or a positive number, got {threshold!r}')
    return threshold
