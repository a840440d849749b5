"""The native ops through TensorFlow: validation, shapes, threads, residual variables."""

import threading

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.oracles import two_bit as oracle
from tf_gc.ops import two_bit_decode, two_bit_encode
from tf_gc.ops.library import device_types

HEADER_BYTES = 16
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]
THRESHOLDS = [0.5, "auto"]
InvalidArgument = tf.errors.InvalidArgumentError


def random_bucket(
    shapes: list[tuple[int, ...]], dtype: type = np.float32, seed: int = 0
) -> tuple[list[tf.Tensor], list[tf.Variable]]:
    random = np.random.default_rng(seed)
    gradients = [tf.constant(random.normal(size=shape).astype(dtype)) for shape in shapes]
    residuals = [tf.Variable(random.normal(size=shape).astype(np.float32)) for shape in shapes]
    return gradients, residuals


def zeros(shape: tuple[int, ...] = (4,)) -> tf.Variable:
    return tf.Variable(tf.zeros(shape))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_a_bucket_is_its_tensors_blocks_in_order(threshold: float | str, dtype: type) -> None:
    shapes = [(3, 50), (0,), (128,), (), (1, 129), (70_001,)]
    gradients, residuals = random_bucket(shapes, dtype)
    before = [residual.numpy() for residual in residuals]

    message = two_bit_encode(gradients, residuals, threshold)

    codes, scales = [], []
    for gradient, residual, r in zip(gradients, residuals, before, strict=True):
        flat = gradient.numpy().reshape(-1)
        if isinstance(threshold, str):
            code, scale, expected = oracle.encode_auto(flat, r.reshape(-1))
            scales.append(scale)
        else:
            code, expected = oracle.encode_fixed(flat, r.reshape(-1), threshold)
        codes.append(code)
        np.testing.assert_array_equal(residual.numpy().reshape(-1), expected)
    body = np.concatenate([*codes, *[scale.view(np.uint8) for scale in scales]])
    data = message.numpy().view(np.uint8).reshape(-1)
    np.testing.assert_array_equal(data[HEADER_BYTES : HEADER_BYTES + body.size], body)
    assert not data[HEADER_BYTES + body.size :].any()
    assert data.size % 16 == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threshold", THRESHOLDS)
@pytest.mark.parametrize("split", [False, True])
def test_decode_adds_the_replicas_in_order(
    threshold: float | str, dtype: type, split: bool
) -> None:
    shapes = [(3, 50), (129,), (20_000,)]
    sent, messages = [], []
    for replica in range(3):
        gradients, residuals = random_bucket(shapes, dtype, seed=replica)
        before = [residual.numpy() for residual in residuals]
        messages.append(two_bit_encode(gradients, residuals, threshold))
        sent.append(
            [
                g.numpy().astype(np.float32) + r - after.numpy()
                for g, r, after in zip(gradients, before, residuals, strict=True)
            ]
        )
    rows = messages if split else tf.concat(messages, axis=0)
    sums = two_bit_decode(rows, like=gradients, threshold=threshold)
    for i, total in enumerate(sums):
        expected = sum(values[i] for values in sent)
        assert total.shape == shapes[i]
        assert total.dtype == gradients[i].dtype
        tolerance = 1e-5 if dtype == np.float32 else 2e-2
        np.testing.assert_allclose(
            total.numpy().astype(np.float32), expected, rtol=tolerance, atol=tolerance
        )


def test_the_documented_byte() -> None:
    message = two_bit_encode([tf.constant([0.5, -0.5, 0.0, 0.5])], [zeros()], 0.5)
    assert message.numpy().view(np.uint8)[0, HEADER_BYTES] == 0xE3


def test_a_residual_that_is_being_read_keeps_its_old_value_for_the_reader() -> None:
    gradients, residuals = random_bucket([(1000,)])

    @tf.function
    def step() -> tuple[tf.Tensor, tf.Tensor]:
        old = residuals[0].read_value()
        message = two_bit_encode(gradients, residuals)
        with tf.control_dependencies([message]):
            return tf.identity(old), residuals[0].read_value()

    before = residuals[0].numpy()
    old, new = step()
    np.testing.assert_array_equal(old, before)
    _, _, expected = oracle.encode_auto(gradients[0].numpy(), before)
    np.testing.assert_array_equal(new, expected)


def test_like_keeps_its_value_if_it_is_still_needed() -> None:
    gradients, residuals = random_bucket([(1000,)])
    before = gradients[0].numpy().copy()

    @tf.function
    def step(gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        doubled = gradient * 2
        message = two_bit_encode([doubled], residuals)
        (total,) = two_bit_decode(message, like=[doubled])
        return doubled, total

    doubled, _ = step(gradients[0])
    np.testing.assert_array_equal(doubled, before * 2)


def test_many_threads_give_the_bits_of_one() -> None:
    gradients, residuals = random_bucket([(1_000_003,), (17,), (300_000,)])
    before = [residual.numpy() for residual in residuals]
    two_bit_encode(gradients, residuals)
    for gradient, residual, r in zip(gradients, residuals, before, strict=True):
        _, _, expected = oracle.encode_auto(gradient.numpy(), r)
        np.testing.assert_array_equal(residual.numpy(), expected)


def test_concurrent_encodes_of_the_same_residuals_do_not_deadlock_or_lose_mass() -> None:
    first, second = zeros((5000,)), zeros((5000,))
    gradient = tf.fill((5000,), 0.3)
    sent = []

    def work(order: list[tf.Variable]) -> None:
        for _ in range(50):
            message = two_bit_encode([gradient, gradient], order, 0.5)
            total = two_bit_decode(message, like=[gradient, gradient], threshold=0.5)
            sent.append(sum(float(tf.reduce_sum(tf.cast(t, tf.float64))) for t in total))

    threads = [
        threading.Thread(target=work, args=(order,)) for order in ([first, second], [second, first])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    left = float(tf.reduce_sum(tf.cast(first + second, tf.float64)))
    np.testing.assert_allclose(sum(sent) + left, 0.3 * 2 * 5000 * 100, rtol=1e-4)


def test_kernels_exist_for_the_cpu() -> None:
    assert "CPU" in device_types()


def test_shape_functions_know_the_message_and_the_sums() -> None:
    residuals = [zeros((129,)), zeros((2, 5))]

    @tf.function
    def trace(g: tf.Tensor, h: tf.Tensor) -> None:
        auto = two_bit_encode([g, h], residuals)
        fixed = two_bit_encode([g, h], residuals, 0.5)
        # 3 blocks: 16 bytes of header, 96 of codes, 6 of scales, padded to 16.
        assert auto.shape == [1, 128 // 8]
        assert fixed.shape == [1, 112 // 8]
        sums = two_bit_decode(auto, like=[g, h])
        assert [s.shape for s in sums] == [g.shape, h.shape]

    trace.get_concrete_function(tf.TensorSpec((129,)), tf.TensorSpec((2, 5)))


@pytest.mark.parametrize("known", [False, True])
def test_a_gradient_of_open_size_takes_that_of_its_residual(known: bool) -> None:
    residual = tf.Variable(tf.zeros(7), shape=(7,) if known else (None,))

    @tf.function
    def trace(g: tf.Tensor) -> tf.Tensor:
        message = two_bit_encode([g], [residual])
        assert message.shape.as_list() == [1, 8 if known else None]
        (total,) = two_bit_decode(message, like=[g])
        return total

    spec = tf.TensorSpec((None,), tf.float32)
    concrete = trace.get_concrete_function(spec)
    assert concrete(tf.ones(7)).shape == (7,)


def test_the_message_of_a_gradient_out_of_a_loop_has_a_known_size() -> None:
    residual = zeros((7,))

    @tf.function
    def trace(x: tf.Tensor) -> tf.Tensor:
        _, gradient = tf.while_loop(
            lambda i, _: i < 3,
            lambda i, g: (i + 1, tf.concat([g[1:], g[:1]], axis=0)),
            (0, x),
            shape_invariants=(tf.TensorShape(()), tf.TensorShape((None,))),
        )
        assert gradient.shape.as_list() == [None]
        message = two_bit_encode([gradient], [residual], 0.5)
        assert message.shape == (1, 6)
        return two_bit_decode(message, [gradient], 0.5)[0]

    np.testing.assert_array_equal(trace(tf.eye(7)[0]), [0, 0, 0, 0, 0.5, 0, 0])


def test_shape_functions_refuse_a_residual_of_another_shape() -> None:
    residual = zeros((5,))

    @tf.function
    def trace(g: tf.Tensor) -> tf.Tensor:
        return two_bit_encode([g], [residual])

    with pytest.raises(ValueError, match=r"must be equal|Dimensions"):
        trace.get_concrete_function(tf.TensorSpec((4,)))


@pytest.mark.parametrize("shape", [(5,), (2, 2), ()])
def test_a_residual_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgument, match=r"residual 0 .*shape \[4\]"):
        two_bit_encode([tf.zeros(4)], [zeros(shape)])


def test_a_residual_of_another_dtype_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"float32.*double"):
        two_bit_encode([tf.zeros(4)], [tf.Variable(tf.zeros(4, tf.float64))])


def test_the_same_residual_twice_is_refused() -> None:
    residual = zeros()
    with pytest.raises(InvalidArgument, match="twice"):
        two_bit_encode([tf.zeros(4)] * 2, [residual] * 2)


def test_gradients_and_residuals_must_be_as_many() -> None:
    with pytest.raises(ValueError, match=r"2 gradients.*1"):
        two_bit_encode([tf.zeros(4)] * 2, [zeros()])


def test_an_empty_bucket_is_refused() -> None:
    with pytest.raises(ValueError, match="`gradients` is empty"):
        two_bit_encode([], [])
    message = two_bit_encode([tf.zeros(4)], [zeros()])
    with pytest.raises(ValueError, match="`messages` is empty"):
        two_bit_decode([], [tf.zeros(4)])
    with pytest.raises(ValueError, match="`like` is empty"):
        two_bit_decode(message, [])


@pytest.mark.parametrize("threshold", [0, -0.0, -0.5, float("nan"), float("inf"), 1e-40, 2e36])
def test_a_threshold_out_of_range_is_refused(threshold: float) -> None:
    with pytest.raises(InvalidArgument, match=r"threshold must be in \[.* two_bit, got "):
        two_bit_encode([tf.zeros(4)], [zeros()], threshold)


def test_a_threshold_that_is_a_string_is_refused() -> None:
    with pytest.raises(ValueError, match="threshold must be"):
        two_bit_encode([tf.zeros(4)], [zeros()], "0.5")


@pytest.mark.parametrize("dtype", [tf.float64, tf.int32])
def test_another_dtype_is_refused(dtype: tf.DType) -> None:
    with pytest.raises((InvalidArgument, TypeError)):
        two_bit_encode([tf.zeros(4, dtype)], [zeros()])


def test_a_message_without_rows_is_refused() -> None:
    message = two_bit_encode([tf.zeros(4)], [zeros()])
    with pytest.raises(InvalidArgument, match="holds no row"):
        two_bit_decode(message[:0], [tf.zeros(4)])


@pytest.mark.parametrize(
    "shape", [(1, 4), (1, 10), (8,), (1, 1, 8), ()], ids=lambda shape: "x".join(map(str, shape))
)
def test_a_message_of_the_wrong_length_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgument):
        two_bit_decode(tf.zeros(shape, tf.int64), [tf.zeros(4)])


@pytest.mark.parametrize(
    ("byte", "named"),
    [(0, "magic"), (2, "wire version"), (3, "codec"), (7, "threshold"), (8, "blocks")],
)
def test_a_header_of_another_kind_is_refused(byte: int, named: str) -> None:
    message = two_bit_encode([tf.zeros(4)], [zeros()], 0.5)
    data = message.numpy().view(np.uint8)
    data[0, byte] ^= 0x11
    with pytest.raises(InvalidArgument, match=named):
        two_bit_decode(data.view(np.int64), [tf.zeros(4)], 0.5)


def test_codec_and_threshold_of_sender_and_receiver_must_agree() -> None:
    fixed = two_bit_encode([tf.zeros(1000)], [zeros((1000,))], 0.5)
    with pytest.raises(InvalidArgument, match=r"threshold 0\.5.*expects 0\.25"):
        two_bit_decode(fixed, [tf.zeros(1000)], 0.25)
    with pytest.raises(InvalidArgument, match="shape"):
        two_bit_decode(fixed, [tf.zeros(1000)])


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_any_body_decodes_to_something(threshold: float | str) -> None:
    size = 1001
    random = np.random.default_rng(1)
    like = [tf.zeros(size)]
    message = two_bit_encode(like, [zeros((size,))], threshold)
    data = np.repeat(message.numpy().view(np.uint8), 5, axis=0)
    for _ in range(20):
        data[:, HEADER_BYTES:] = random.integers(256, size=data[:, HEADER_BYTES:].shape)
        (total,) = two_bit_decode(data.view(np.int64), like, threshold)
        assert total.shape == (size,)
