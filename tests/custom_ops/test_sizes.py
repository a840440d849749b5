"""Tensors of more than 2^31 elements: sizes, shapes of messages, and one encode and decode."""

import ctypes
import mmap
import os
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given
from hypothesis import strategies as st

from tests.bits import assert_same_bits
from tests.cases import matrix
from tests.custom_ops import cases, native
from tests.custom_ops.cases import BFLOAT16, decode_sum, zeros
from tests.custom_ops.native import Array, Levels
from tf_gc.ops import count, encode, reencode

MAX_BLOCKS = 2**54
# By the codec and its threshold.
BLOCK_BYTES: dict[tuple[str, float | str], int] = {
    **{("two_bit", 0.5): 32, ("two_bit", "auto"): 34, ("one_bit", 0.0): 18},
    **{("one_bit", "auto"): 18, ("three_bit", "auto"): 50, ("four_bit", "auto"): 66},
    **{("eight_bit", "auto"): 130},
}
# Of mmap(2), which Python does not name.
MAP_FIXED, MAP_NORESERVE = 0x10, 0x4000
ELEMENTS = st.one_of(
    st.integers(0, MAX_BLOCKS * 128),
    st.builds(lambda e, d: max(0, 2**e + d), st.integers(0, 60), st.integers(-130, 130)),
)


def words(blocks: int, block_bytes: int) -> int:
    return -(-(16 + blocks * block_bytes) // 16) * 2


def message_shape(*shapes: tuple[int, ...], **arguments: Any) -> tuple[int, ...]:
    """The shape that `encode` says its messages have, for tensors that need not exist."""
    with tf.Graph().as_default():
        gradients = [tf.compat.v1.placeholder(tf.bfloat16, shape) for shape in shapes]
        residuals = [tf.compat.v1.placeholder(tf.resource, []) for _ in shapes]
        return tuple(encode(gradients, residuals, **arguments).shape)


@given(
    sizes=st.lists(ELEMENTS, min_size=1, max_size=3),
    shards=st.integers(1, 2**31),
    of_codec=st.sampled_from(list(BLOCK_BYTES)),
)
@example([2**31], 1, ("two_bit", "auto"))
@example([2**32 + 129], 1, ("two_bit", 0.5))
def test_messages_of_huge_buckets_have_the_size_of_their_blocks(
    sizes: list[int], shards: int, of_codec: tuple[str, float | str]
) -> None:
    blocks = sum(-(-size // 128) for size in sizes)
    codec, threshold = of_codec
    arguments = {"shards": shards, "codec": codec, "threshold": threshold}
    shapes = [(size,) for size in sizes]
    if blocks > MAX_BLOCKS:
        with pytest.raises(ValueError, match=f"at most {MAX_BLOCKS} blocks .*got "):
            message_shape(*shapes, **arguments)
        return
    expected = (shards, words(-(-blocks // shards), BLOCK_BYTES[of_codec]))
    assert message_shape(*shapes, **arguments) == expected


def test_dimensions_multiply_in_64_bits() -> None:
    assert message_shape((2**20, 2**15, 3)) == (1, words(2**35 * 3 // 128, 34))


def count_shape(length: int, replicas: int) -> tuple[int, ...]:
    with tf.Graph().as_default():
        messages = tf.compat.v1.placeholder(tf.int64, (None, length))
        return tuple(count(messages, replicas, "two_bit", 0.5).shape)


@pytest.mark.parametrize("blocks", [2**24 + 1, 2**31, 2**40 - 1, MAX_BLOCKS])
@pytest.mark.parametrize(("replicas", "bits"), [(7, 4), (127, 8), (32767, 16)])
def test_counts_of_huge_messages_have_the_size_of_their_blocks(
    blocks: int, replicas: int, bits: int
) -> None:
    assert count_shape(words(blocks, 32), replicas) == (1, words(blocks, 16 * bits))


@pytest.mark.parametrize("length", [words(MAX_BLOCKS + 1, 32), 2**60 + 6, 2**61 + 6, 2**63 - 2])
def test_messages_that_no_memory_holds_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"has {length} words"):
        count_shape(length, 32767)


def test_a_reencoded_shard_of_a_huge_tensor_has_the_size_of_its_blocks() -> None:
    blocks = 2**30 + 1
    with tf.Graph().as_default():
        gradient = tf.compat.v1.placeholder(tf.float32, (2**38 + 5,))
        residual = tf.compat.v1.placeholder(tf.resource, [])
        messages = tf.compat.v1.placeholder(tf.int64, (2, None))
        message = reencode(messages, [gradient], [residual], shard=1, shards=2)
    assert tuple(message.shape) == (1, words(blocks, 34))


class Repeated:
    """An array that lies in memory once and in the address space many times.

    Element i and element i + `period` are the same: a tensor of gigabytes needs no memory.
    """

    def __init__(self, size: int, period: int, dtype: Any) -> None:
        dtype = np.dtype(dtype)
        part = period * dtype.itemsize
        assert part % mmap.PAGESIZE == 0
        self._file = os.memfd_create("repeated")
        os.ftruncate(self._file, part)
        repeats = -(-size // period)
        # Address space to map the file into, again and again.
        self._space = mmap.mmap(-1, repeats * part, flags=mmap.MAP_PRIVATE | MAP_NORESERVE)
        self.array: Array = np.frombuffer(self._space, dtype, size)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        fixed_shared = MAP_FIXED | mmap.MAP_SHARED
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        for i in range(repeats):
            address = self.array.ctypes.data + i * part
            mapped = libc.mmap(address, part, protection, fixed_shared, self._file, 0)
            assert mapped == address, os.strerror(ctypes.get_errno())
        os.close(self._file)


@matrix
def test_two_to_the_31_elements_and_more(library: native.Library) -> None:
    """Each period of a repeated gradient and residual is the next step of a small one."""
    codec = Levels.THREE_BIT  # The loops over blocks are the same for all.
    period, size = 2**22, 2**31 + 129
    block_bytes, blocks = native.code_bytes(codec), native.num_blocks(size)
    gradient = Repeated(size, period, BFLOAT16)
    gradient.array[:period] = np.random.default_rng(1).standard_normal(period).astype(BFLOAT16)
    residual = Repeated(size, period, np.float32)
    codes, scales = np.zeros(blocks * block_bytes, np.uint8), np.zeros(blocks, np.uint16)
    library.encode(codec, gradient.array, residual.array, residual.array, codes, scales)

    expected = zeros(period)
    for first in range(0, size, period):
        count = min(period, size - first)
        message = cases.encode(library, codec, gradient.array[:count], expected[:count])
        expected[:count] = message.residual
        found = codes[first // 128 * block_bytes :][: message.codes.size]
        np.testing.assert_array_equal(found, message.codes)
        np.testing.assert_array_equal(scales[first // 128 :][: message.scales.size], message.scales)
    np.testing.assert_array_equal(residual.array[:period], expected)

    # The last elements, which lie at the start of the last period, are written last.
    sums = Repeated(size, period, BFLOAT16)
    library.decode_sum(codec, [codes], [scales], sums.array)
    last = decode_sum(library, codec, [message], size % period, BFLOAT16)
    assert_same_bits(sums.array[-last.size :], last)
