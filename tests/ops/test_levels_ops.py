"""The ops with several levels through TensorFlow: messages, both stages, what they refuse."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.oracles import levels as oracle
from tf_gc.ops import decode, decode_shards, encode, message_bits, reencode

HEADER_BYTES = 16
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]
SHAPES = [(3, 50), (0,), (128,), (), (1, 129), (2000,)]  # 22 blocks
InvalidArgument = tf.errors.InvalidArgumentError
Replica = tuple[list[tf.Tensor], list[tf.Variable]]

each_codec = pytest.mark.parametrize("codec", ["three_bit", "four_bit"])
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def bits_of(codec: str) -> int:
    return {"three_bit": 3, "four_bit": 4}[codec]


def make_replica(
    shapes: list[tuple[int, ...]] = SHAPES, dtype: type = np.float32, seed: int = 0
) -> Replica:
    random = np.random.default_rng(seed)
    gradients = [tf.constant(random.normal(size=shape).astype(dtype)) for shape in shapes]
    residuals = [tf.Variable(random.normal(size=shape).astype(np.float32)) for shape in shapes]
    return gradients, residuals


@each_dtype
@each_codec
def test_a_bucket_is_its_tensors_blocks_in_order(codec: str, dtype: type) -> None:
    gradients, residuals = make_replica(dtype=dtype)
    before = [residual.numpy() for residual in residuals]
    message = encode(gradients, residuals, codec)
    codes, scales = [], []
    for gradient, residual, r in zip(gradients, residuals, before, strict=True):
        code, scale, expected = oracle.encode(
            gradient.numpy().reshape(-1), r.reshape(-1), bits=bits_of(codec)
        )
        codes.append(code)
        scales.append(scale.view(np.uint8))
        np.testing.assert_array_equal(residual.numpy().reshape(-1), expected)
    body = np.concatenate([*codes, *scales])
    data = message.numpy().view(np.uint8).reshape(-1)
    np.testing.assert_array_equal(data[HEADER_BYTES : HEADER_BYTES + body.size], body)
    assert not data[HEADER_BYTES + body.size :].any()


def test_the_bytes_of_messages() -> None:
    def message_of(largest: float, small: float, codec: str) -> bytes:
        gradient = tf.constant([largest, -4.0, small, np.nan])
        return encode([gradient], [tf.Variable(tf.zeros(4))], codec).numpy().tobytes()

    def planes(*first: int) -> bytes:
        return b"".join(bytes([plane]) + bytes(15) for plane in first)

    scale = bytes.fromhex("8040")  # 4: the levels are 0.625, 2 and 4
    header = bytes.fromhex("4743 01 08 00000000 0100000000000000")
    body = planes(0b0111, 0b0011, 0b1010)
    assert message_of(4.0, 0.5, "three_bit") == header + body + scale + bytes(14)
    # The smallest level is 0.125.
    header = bytes.fromhex("4743 01 09 00000000 0100000000000000")
    body = planes(0b0111, 0b0011, 0b0011, 0b1010)
    assert message_of(4.5, 0.25, "four_bit") == header + body + scale + bytes(14)


@each_dtype
@each_codec
@pytest.mark.parametrize("replicas", [1, 3, 8])
def test_no_gradient_is_lost_in_one_stage_or_two(codec: str, dtype: type, replicas: int) -> None:
    for stages in (1, 2, 3):  # 3: two, and sums in two layers
        group = [make_replica(dtype=dtype, seed=seed) for seed in range(replicas)]
        expected = [
            sum(g[i].numpy().astype(np.float64) + r[i].numpy() for g, r in group)
            for i in range(len(SHAPES))
        ]
        like = group[0][0]
        if stages == 1:
            rows = tf.concat([encode(*replica, codec) for replica in group], axis=0)
            sums = decode(rows, like, codec)
        else:
            layers = stages - 1
            sent = [
                encode(*replica, codec, shards=replicas, skip=rank)
                for rank, replica in enumerate(group)
            ]
            totals = [
                reencode(
                    [row[rank : rank + 1] for row in sent],
                    *replica,
                    rank,
                    replicas,
                    layers,
                    codec,
                )
                for rank, replica in enumerate(group)
            ]
            sums = decode_shards(
                totals, like, codec, shards=replicas, replicas=replicas, layers=layers
            )
        for i, total in enumerate(sums):
            assert total.dtype == like[i].dtype
            kept = sum(residuals[i].numpy().astype(np.float64) for _, residuals in group)
            # 16-bit results round the sum itself.
            tolerance = 1e-4 if dtype == np.float32 else 8e-2
            ledger = total.numpy().astype(np.float64) + kept
            np.testing.assert_allclose(ledger, expected[i], atol=tolerance)


@each_codec
def test_a_skipped_shard_sends_zeros_and_keeps_its_residuals(codec: str) -> None:
    gradients, residuals = make_replica([(1000,)])
    before = residuals[0].numpy()
    rows = encode(gradients, residuals, codec, shards=4, skip=1).numpy()
    assert not rows[1, 2:].any()
    same = residuals[0].numpy() == before
    assert same[256:512].all()
    assert not np.delete(same, slice(256, 512)).all()


@each_codec
def test_many_threads_give_the_bits_of_one(codec: str) -> None:
    gradients, residuals = make_replica([(1_000_003,)])
    _, _, expected = oracle.encode(gradients[0].numpy(), residuals[0].numpy(), bits=bits_of(codec))
    encode(gradients, residuals, codec)
    np.testing.assert_array_equal(residuals[0], expected)


def test_the_bits_of_a_message_do_not_depend_on_the_replicas() -> None:
    assert [message_bits(n, "three_bit") for n in (1, 2, 1000)] == [3.125] * 3
    assert [message_bits(n, "four_bit") for n in (1, 2, 1000)] == [4.125] * 3


@each_codec
def test_any_body_is_taken(codec: str) -> None:
    gradients, residuals = make_replica([(300,)])
    data = encode(gradients, residuals, codec).numpy().view(np.uint8)
    random = np.random.default_rng(1)
    for _ in range(20):
        data[:, HEADER_BYTES:] = random.integers(256, size=data[:, HEADER_BYTES:].shape)
        (total,) = decode(tf.constant(data.view(np.int64)), gradients, codec)
        size = 3 * 16 * bits_of(codec)
        codes, scales = data[0, 16 : 16 + size], data[0, 16 + size : 22 + size].view(np.uint16)
        expected = oracle.decode_sum([codes], [scales], 300, np.float32, bits_of(codec))
        np.testing.assert_array_equal(total, expected)


@each_codec
@pytest.mark.parametrize(
    ("byte", "named"),
    [(0, "magic"), (2, "wire version"), (3, "codec"), (7, "threshold"), (8, "blocks")],
)
def test_a_header_of_another_kind_is_refused(codec: str, byte: int, named: str) -> None:
    gradients, residuals = make_replica([(300,)])
    data = encode(gradients, residuals, codec).numpy().view(np.uint8)
    data[0, byte] ^= 0x11
    with pytest.raises(InvalidArgument, match=named):
        decode(tf.constant(data.view(np.int64)), gradients, codec)
