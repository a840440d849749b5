"""Every implementation of the codecs gives the oracle's bits."""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.bits import assert_same_bits
from tests.cases import matrix
from tests.custom_ops import cases, native
from tests.custom_ops.native import AnyCodec, Library, OneBit, Target

SIZES = [0, 1, 3, 4, 5, 15, 16, 17, 127, 128, 129, 255, 256, 509, 1021, 7919, 65_537]
# Of elements off the alignment; one of them is enough for what is long.
SHIFTS = {True: (0, 1, 3), False: (1,)}


@pytest.mark.parametrize("target", [Target.AVX2, Target.AVX512], ids=lambda t: t.name.lower())
def test_this_processor_has(library: Library, target: Target) -> None:
    """Is skipped for a target of x86 that the other tests here cannot use."""
    if Target.NEON not in library.supported_targets() and not library.force_target(target):
        pytest.skip(f"this processor lacks {target.name}")


@cases.each_codec
@cases.each_dtype
def test_encoding_equals_the_oracle(
    parity: cases.Parity, codec: AnyCodec, dtype: np.dtype[Any]
) -> None:
    for size in SIZES:
        rng = np.random.default_rng(size)
        options = [*itertools.product((True, False), SHIFTS[size < 9000])]
        parity.encode(codec, *cases.random_pair(rng, size, dtype), options=options)


@cases.each_codec
@cases.each_dtype
def test_without_residuals_messages_are_as_with_zeros(
    on_each_target: cases.Targets, codec: AnyCodec, dtype: np.dtype[Any]
) -> None:
    for size in SIZES[:-1]:
        gradient, _ = cases.random_pair(np.random.default_rng(size), size, dtype)
        expected = cases.oracle_encode(codec, gradient, cases.zeros(size))
        parts = expected.codes, expected.scales
        for library in on_each_target():
            codes, scales = (cases.Guarded(part.size, part.dtype) for part in parts)
            library.encode(codec, gradient, None, None, codes.array, scales.array, cases.THRESHOLD)
            assert_same_bits(codes.check(), expected.codes)
            assert_same_bits(scales.check(), expected.scales)


@cases.each_codec
@cases.each_dtype
def test_decoded_sum_equals_the_oracle(
    parity: cases.Parity, codec: AnyCodec, dtype: np.dtype[Any]
) -> None:
    for size in SIZES:
        rng = np.random.default_rng(size)
        encoded = [
            cases.oracle_encode(codec, *cases.random_pair(rng, size, dtype)) for _ in range(8)
        ]
        hostile = cases.hostile_messages(rng, codec, 8, size)
        for of_all, replicas in itertools.product((encoded, hostile), (1, 2, 3, 5, 8)):
            parity.decode_sum(codec, of_all[:replicas], size, dtype, shifts=SHIFTS[size < 9000])


@matrix
@cases.each_codec
def test_a_result_larger_than_the_caches_equals_the_scalar_one(
    on_each_target: cases.Targets, codec: AnyCodec
) -> None:
    size = (48 << 20) // cases.FLOAT32.itemsize + 77
    messages = cases.hostile_messages(np.random.default_rng(7), codec, 2, size)
    scalar, *others = [
        cases.decode_sum(library, codec, messages, size, cases.FLOAT32, shift=shift)
        for library in on_each_target()
        for shift in (0, 1)
    ]
    for other in others:
        assert_same_bits(other, scalar)


# ---- Chosen and searched values ----------------------------------------------------


def around(value: float) -> list[float]:
    """A float32 value and its neighbours, with both signs."""
    middle = np.float32(value)
    near = [middle, *(np.nextafter(middle, np.float32(to)) for to in (0, np.inf))]
    return [float(sign * x) for x in near for sign in (1, -1)]


SPECIAL = [
    float(np.float32(value))
    for value in (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 1e-45, -1e-45, 1e-40, 3.4e38, -3.4e38)
]
for boundary in (cases.THRESHOLD, 2.0**120, 2.0**119, 2.0**-126, 65504.0, 2.0**-14, 2.0**-24):
    SPECIAL += around(boundary)

elements = st.one_of(st.sampled_from(SPECIAL), st.floats(width=32), st.floats(-2, 2, width=32))


# Mostly one value, so that whole blocks are finite or are not.
vectors = st.integers(0, 300).flatmap(
    lambda size: hnp.arrays(np.float32, size, elements=elements, fill=elements)
)
searched = settings(max_examples=150)


@searched
@given(data=st.data())
def test_any_values_encode_as_the_oracle_says(parity: cases.Parity, data: st.DataObject) -> None:
    values = data.draw(vectors)
    residual = data.draw(
        hnp.arrays(np.float32, values.size, elements=elements, fill=st.sampled_from(SPECIAL))
    )
    for codec, dtype in itertools.product(cases.CODECS, cases.DTYPES):
        with np.errstate(over="ignore"):
            gradient = values.astype(dtype)
        parity.encode(codec, gradient, residual)


@searched
@given(threshold=st.floats(2.0**-126, 2.0**127, width=32), data=st.data())
def test_any_threshold_sends_and_sums_as_the_oracle_says(
    parity: cases.Parity, threshold: float, data: st.DataObject
) -> None:
    near = st.sampled_from([x for x in around(threshold) if np.isfinite(x)])
    values = data.draw(hnp.arrays(np.float32, 150, elements=near, fill=near))
    for codec, dtype in itertools.product(cases.FIXED, cases.DTYPES):
        with np.errstate(over="ignore"):
            gradient = values.astype(dtype)
        message = parity.encode(codec, gradient, cases.zeros(150), threshold)
        parity.decode_sum(codec, [message] * 3, 150, dtype, threshold)


@matrix
@cases.each_codec
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), cases.BFLOAT16], ids=str)
def test_every_16_bit_gradient_encodes_as_the_oracle_says(
    parity: cases.Parity, codec: AnyCodec, dtype: np.dtype[Any]
) -> None:
    # In the order of their bits, and shuffled: with and without whole blocks of one kind.
    ordered = np.arange(65_536, dtype=np.uint16)
    for bits in (ordered, np.random.default_rng(2).permutation(ordered)):
        parity.encode(codec, bits.view(dtype), cases.zeros(bits.size))


@matrix
@cases.each_dtype
@cases.each_auto
def test_sums_of_every_scale_are_rounded_as_the_oracle_says(
    parity: cases.Parity, codec: AnyCodec, dtype: np.dtype[Any]
) -> None:
    """Every bfloat16 as a scale, plus one of another message: ties, overflow, subnormals."""
    scales = np.arange(65_536, dtype=np.uint16)
    size = scales.size * native.BLOCK_SIZE
    codes = np.full(scales.size * native.code_bytes(codec), 0b11100001, np.uint8)
    rng = np.random.default_rng(3)
    # Scales of nearly the same size, so that the sums need more bits than dtype has.
    other = (scales ^ rng.integers(0, 1 << 10, scales.size, np.uint16)) & np.uint16(0x7FFF)
    messages = [cases.Message(codes, each, cases.zeros(0)) for each in (scales, other)]
    parity.decode_sum(codec, messages, size, dtype)


# ---- What the definition promises --------------------------------------------------


@cases.each_codec
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**120, -3e38])
@pytest.mark.parametrize("size", [50, 128, 1000])
def test_what_is_not_finite_arrives_as_nan_and_leaves_its_residual(
    parity: cases.Parity, codec: AnyCodec, bad: float, size: int
) -> None:
    rng = np.random.default_rng(4)
    gradient = rng.standard_normal(size).astype(np.float32)
    residual = cases.random_residual(rng, size)
    where = np.zeros(size, np.bool_)
    where[[7, 40]] = True
    gradient[where] = bad
    if isinstance(codec, OneBit):  # which marks blocks
        where = np.arange(size) < native.BLOCK_SIZE
    message = parity.encode(codec, gradient, residual)
    assert_same_bits(message.residual[where], residual[where])
    assert np.isfinite(message.residual).all()
    np.testing.assert_array_equal(np.isnan(parity.decode_sum(codec, [message], size)), where)


EXCEPTIONS = 0x003F  # of MXCSR: what happened so far, not a mode


def with_float_mode(library: Library, mode: int, function: Callable[[], Any]) -> Any:
    """Calls `function` in a thread whose float mode has the bits of `mode` set."""

    def call() -> Any:
        library.call("set_float_mode", library.call("float_mode") | mode)
        before = library.call("float_mode") & ~EXCEPTIONS
        result = function()
        assert library.call("float_mode") & ~EXCEPTIONS == before
        return result

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


@cases.each_codec
@cases.each_dtype
def test_the_float_mode_of_the_thread_changes_nothing(
    on_each_target: cases.Targets, codec: AnyCodec, dtype: np.dtype[Any]
) -> None:
    size = 4 * native.BLOCK_SIZE + 5
    rng = np.random.default_rng(6)
    # Everything subnormal, or just above: flushing any of it would change the results.
    with np.errstate(under="ignore"):
        tiny = (rng.standard_normal(size) * 2.0**-125).astype(np.float32)
    small = np.array(1, f"u{dtype.itemsize}").view(dtype)  # the smallest subnormal
    gradient = (rng.integers(-3, 4, size) * float(small)).astype(dtype)
    messages = cases.hostile_messages(rng, codec, 3, size)
    threshold = float(2.0**-126)
    expected = cases.oracle_encode(codec, gradient, tiny, threshold)
    expected_sum = cases.oracle_decode_sum(codec, messages, size, dtype, threshold)

    for library in on_each_target():

        def work(library: Library = library) -> tuple[cases.Message, cases.Array]:
            message = cases.encode(library, codec, gradient, tiny, threshold)
            return message, cases.decode_sum(library, codec, messages, size, dtype, threshold)

        for mode in (0, *library.float_modes):
            message, total = with_float_mode(library, mode, work)
            message.assert_equals(expected)
            assert_same_bits(total, expected_sum)


def test_unknown_targets_are_refused(library: Library) -> None:
    before = library.active_target()
    for target in {-1, 4, *Target}.difference(library.supported_targets()):
        assert not library.force_target(target)
    assert library.active_target() == before
