"""`compression_params`: what a user may say, and what that compresses."""

import dataclasses
import math
import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tf_gc.params import CompressionParams, Gradient, LeftAlone, from_params

F64 = tf.float64


def compresses(params: CompressionParams, dtype: tf.DType, elements: int) -> bool:
    spec = params.spec_of(Gradient("kernel", dtype, (elements,)))
    assert isinstance(spec, LeftAlone) or spec in params.specs()
    return not isinstance(spec, LeftAlone)


def test_none_means_three_bits() -> None:
    assert from_params(None) == tf_gc.Quantized() == tf_gc.Quantized(bits=3)


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_casts(name: str) -> None:
    assert from_params({"type": name}) == tf_gc.Cast(name) == tf_gc.Cast(tf.as_dtype(name))
    assert from_params({"type": name, "plan": "all_gather", "exclude": "a"}) == tf_gc.Cast(
        name, plan="all_gather", exclude="a"
    )
    assert compresses(tf_gc.Cast(name), tf.float32, 2048)
    assert not compresses(tf_gc.Cast(name), tf.float32, 2047)
    assert not any(
        compresses(tf_gc.Cast(name), dtype, 1 << 20)
        for dtype in (tf.float16, tf.bfloat16, tf.float64, tf.int32)
    )


@pytest.mark.parametrize("dtype", ["float32", "half", 16, None, tf.float64, "int8"])
def test_a_cast_to_other_numbers_is_refused(dtype: Any) -> None:
    with pytest.raises(ValueError, match=r"dtype must be one of \['bfloat16', 'float16'\], got"):
        tf_gc.Cast(dtype)


@pytest.mark.parametrize("key", ["dtype", "warm_up", "wire", "sum_bits", "bits"])
def test_a_cast_has_no_other_keys(key: str) -> None:
    with pytest.raises(ValueError, match=rf"unknown keys \['{key}'\].*'bfloat16' allows"):
        from_params({"type": "bfloat16", key: "float16"})


def test_quantized_dicts() -> None:
    assert from_params({"type": "quantized"}) == tf_gc.Quantized()
    assert from_params({"type": "quantized", "bits": 4}) == tf_gc.Quantized(4)


@pytest.mark.parametrize("bits", [0, 5, 3.0, True, "3", None])
def test_bits_out_of_range_are_refused(bits: object) -> None:
    with pytest.raises(ValueError, match=rf"bits must be one of \[1, 2, 3, 4\], got {bits!r}"):
        tf_gc.Quantized(bits)  # type: ignore[arg-type]


def test_integers_may_be_those_of_numpy() -> None:
    params = tf_gc.Quantized(np.int64(2), bypass_size=np.int8(3), sum_bits=np.int32(2))
    assert repr(params) == repr(tf_gc.Quantized(2, bypass_size=3, sum_bits=2))


def test_one_and_two_bits_are_the_codecs_of_these_names() -> None:
    assert tf_gc.Quantized(1).specs() == tf_gc.OneBit().specs()
    assert tf_gc.Quantized(2).specs() == tf_gc.TwoBit().specs()


def test_mxnet_dict_gives_the_fixed_threshold() -> None:
    assert from_params({"type": "2bit", "threshold": 0.5}) == tf_gc.TwoBit(0.5)


def test_mxnet_dict_without_threshold_is_automatic() -> None:
    assert from_params({"type": "2bit"}) == tf_gc.TwoBit()


def test_one_bit_dicts() -> None:
    assert from_params({"type": "1bit"}) == tf_gc.OneBit() == tf_gc.OneBit("auto")
    assert from_params({"type": "1bit", "threshold": 0.5}) == tf_gc.OneBit(0.5)
    assert tf_gc.OneBit(0.5) != tf_gc.TwoBit(0.5)


def test_type_none_is_no_compression() -> None:
    assert from_params({"type": "none"}) == tf_gc.NoCompression()


def test_a_value_stands_for_itself() -> None:
    params = tf_gc.TwoBit(0.25, bypass_size=10)
    assert from_params(params) is params


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"type": "3bit"}, ["'3bit'", "1bit", "2bit", "none"]),
        ({}, ['the key "type"', "2bit"]),
        ({"threshold": 0.5}, ['the key "type"', "2bit"]),
        ({"type": ["2bit"]}, ["['2bit']"]),
        ({"type": "2bit", "treshold": 0.5}, ["treshold", "threshold"]),
        ({"type": "none", "threshold": 0.5}, ["threshold", "none"]),
    ],
)
def test_an_unknown_type_or_key_is_named(params: dict, named: list[str]) -> None:
    with pytest.raises(ValueError, match="compression_params") as error:
        from_params(params)
    for text in named:
        assert text in str(error.value)


@pytest.mark.parametrize("params", ["2bit", 0.5, ["2bit"], tf_gc.TwoBit])
def test_another_kind_of_object_is_refused(params: object) -> None:
    with pytest.raises(TypeError, match="compression_params"):
        from_params(params)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "threshold",
    [
        *(0, 0.0, -0.5, math.inf, -math.inf, math.nan, 1e-50, 1e-40, 1e39, 10**400, 2.0**120),
        *(True, None, "0.5", "automatic", [0.5], 1j),
    ],
)
def test_a_threshold_that_is_not_positive_and_finite_is_refused(threshold: object) -> None:
    with pytest.raises(ValueError, match="threshold must be") as error:
        tf_gc.TwoBit(threshold)  # type: ignore[arg-type]
    assert repr(threshold) in str(error.value)
    with pytest.raises(ValueError, match="threshold must be"):
        tf_gc.CompressedMirroredStrategy(["CPU:0"], {"type": "2bit", "threshold": threshold})


@pytest.mark.parametrize(
    "threshold",
    [
        *(math.inf, -math.inf, math.nan, 1e39, 10**400, 2.0**120, -(2.0**120)),
        *(True, None, "0.5", [0.5], 1j),
    ],
)
def test_a_threshold_of_one_bit_that_is_not_finite_is_refused(threshold: object) -> None:
    with pytest.raises(ValueError, match="threshold must be") as error:
        tf_gc.OneBit(threshold)  # type: ignore[arg-type]
    assert repr(threshold) in str(error.value)


@pytest.mark.parametrize("threshold", [0, -1, 1e-40, np.float32(0.1), 2.0**119])
def test_any_finite_number_is_a_threshold_of_one_bit(threshold: float) -> None:
    assert tf_gc.OneBit(threshold).threshold == float(threshold)


@pytest.mark.parametrize("threshold", [0.5, 1, np.float32(0.1), np.float64(3), 2.0**-126])
def test_any_real_number_is_a_threshold(threshold: float) -> None:
    assert tf_gc.TwoBit(threshold).threshold == float(threshold)


each_kind = pytest.mark.parametrize("kind", [tf_gc.OneBit, tf_gc.TwoBit])
each_class = pytest.mark.parametrize("kind", [tf_gc.OneBit, tf_gc.TwoBit, tf_gc.Quantized])


@each_class
@pytest.mark.parametrize("bypass_size", [-1, 1.5, True, "0"])
def test_a_bad_bypass_size_is_refused(kind: type, bypass_size: object) -> None:
    with pytest.raises(ValueError, match=f"bypass_size.*{bypass_size!r}"):
        kind(bypass_size=bypass_size)


@each_kind
def test_a_number_as_threshold_compresses_every_tensor_as_mxnet_does(kind: type) -> None:
    assert compresses(kind(0.5), tf.float32, 1)
    assert not compresses(kind(), tf.float32, 1)


@each_class
def test_the_bypass_size_is_the_smallest_size_compressed(kind: type) -> None:
    params = kind(bypass_size=100)
    assert not compresses(params, tf.float32, 99)
    assert compresses(params, tf.float32, 100)


@each_class
def test_an_empty_tensor_is_never_compressed(kind: type) -> None:
    assert not compresses(kind(bypass_size=0), tf.float32, 0)


@pytest.mark.parametrize(("rows", "by_default"), [(4095, False), (4096, True)])
def test_tables_of_a_megabyte_are_compressed_by_default(rows: int, by_default: bool) -> None:
    table = Gradient("table", tf.float32, (rows, 64), sparse=True)
    for sparse, expected in ((None, by_default), (True, True), (False, False)):
        spec = tf_gc.Quantized(sparse=sparse).spec_of(table)
        assert isinstance(spec, LeftAlone) != expected


@pytest.mark.parametrize(
    ("params", "dtype", "elements", "sparse", "reason"),
    [
        (tf_gc.Quantized(exclude=["x", "table"]), F64, 9, True, "excluded by the pattern 'table'"),
        (tf_gc.NoCompression(), tf.float32, 1 << 20, False, "excluded by NoCompression()"),
        (tf_gc.Quantized(sparse=True), F64, 1 << 20, True, "dtype float64: .*, so use float32"),
        (tf_gc.LowRank(), F64, 9, True, "dtype float64: .* float32, float16, bfloat16, so use"),
        (tf_gc.Cast(), tf.float16, 1 << 20, False, "dtype float16: Cast compresses float32$"),
        (tf_gc.Quantized(), tf.float32, 2047, False, "fewer elements than bypass_size=2048: a sm"),
        (tf_gc.Quantized(sparse=True), tf.float32, 9, True, "fewer elements than bypass_size"),
        (tf_gc.TwoBit(0.5), tf.float32, 0, False, "have no elements"),
        (
            tf_gc.Quantized(),
            tf.float32,
            1 << 17,
            True,
            r"fewer than 262,144 .*\(sparse=True\) comp",
        ),
        (tf_gc.TwoBit(sparse=False), tf.float32, 1 << 20, True, "and sparse=False: TwoBit.sparse"),
        (tf_gc.OneBit(0.0), tf.float32, 1 << 20, True, "a fixed threshold has no codes"),
        (tf_gc.Cast(), tf.float32, 1 << 20, True, "Cast is for dense ones: tf_gc.Quantized"),
        (tf_gc.Auto(), tf.float32, 9, False, "fewer elements than bypass_size"),
        (tf_gc.ByVariable({"t": {"type": "none"}}), F64, 9, True, "excluded by NoCompression"),
    ],
    ids=str,
)
def test_what_is_left_alone_has_its_true_reason(
    params: CompressionParams, dtype: tf.DType, elements: int, sparse: bool, reason: str
) -> None:
    left = params.spec_of(Gradient("table", dtype, (elements, 1), sparse))
    assert isinstance(left, LeftAlone)
    assert re.search(reason, left.reason), left.reason
    assert left.path == "table"
    assert left.excluded == ("excluded" in reason)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16])
def test_float_gradients_are_compressed(dtype: tf.DType) -> None:
    assert compresses(tf_gc.OneBit(), dtype, 1 << 20)
    assert compresses(tf_gc.TwoBit(), dtype, 1 << 20)
    assert compresses(tf_gc.Quantized(), dtype, 1 << 20)
    assert not compresses(tf_gc.NoCompression(), dtype, 1 << 20)


@pytest.mark.parametrize("dtype", [tf.float64, tf.int32, tf.int64, tf.complex64, tf.string])
def test_other_dtypes_are_not_compressed(dtype: tf.DType) -> None:
    assert not compresses(tf_gc.OneBit(), dtype, 1 << 20)
    assert not compresses(tf_gc.TwoBit(), dtype, 1 << 20)


def test_they_are_frozen_values() -> None:
    assert hash(tf_gc.TwoBit(0.5)) == hash(tf_gc.TwoBit(0.5))
    with pytest.raises(dataclasses.FrozenInstanceError):
        tf_gc.TwoBit().threshold = 1.0  # type: ignore[misc]


def test_codes_of_a_sum_have_as_many_bits_or_are_finer() -> None:
    for kind, bits, finer in ((tf_gc.OneBit, 1, 3), (tf_gc.TwoBit, 2, 3), (tf_gc.Quantized, 3, 4)):
        assert kind() == kind(sum_bits=finer)
        assert kind(sum_bits=np.int64(bits)).sum_bits == bits
    assert tf_gc.Quantized(4).sum_bits == 4


@pytest.mark.parametrize("wrong", [0, 1, 5, True, 3.0, "3"])
def test_codes_of_a_sum_with_other_bits_are_refused(wrong: object) -> None:
    for kind, possible in ((tf_gc.TwoBit, "[2, 3]"), (tf_gc.Quantized, "[3, 4]")):
        words = re.escape(f"sum_bits must be None or one of {possible} where an element takes")
        with pytest.raises(ValueError, match=f"{words}.*got {re.escape(repr(wrong))}"):
            kind(sum_bits=wrong)


@each_kind
def test_sums_with_a_fixed_threshold_have_no_bits(kind: type) -> None:
    assert kind(0.5).sum_bits is None
    with pytest.raises(ValueError, match=r"sum_bits=2.*threshold=0\.5"):
        kind(0.5, sum_bits=2)


def bits(params: CompressionParams, *replicas: int) -> list[float]:
    spec, *_ = params.specs()
    return [spec.codec.bits(n) for n in replicas]


def test_bits_of_a_message() -> None:
    assert bits(tf_gc.OneBit(), 1, 2, 100) == [1.125, 3.125, 3.125]
    assert bits(tf_gc.OneBit(sum_bits=1), 1, 2, 100) == [1.125] * 3
    assert bits(tf_gc.OneBit(0), 1, 2, 8, 128) == [1.125, 4, 8, 16]
    assert bits(tf_gc.TwoBit(), 1, 100) == [2.125, 3.125]
    assert bits(tf_gc.TwoBit(sum_bits=2), 1, 100) == [2.125] * 2
    assert bits(tf_gc.Quantized(), 1, 2, 100) == [3.125, 4.125, 4.125]
    assert bits(tf_gc.Quantized(4), 1, 2) == [4.125, 4.125]
    assert bits(tf_gc.Quantized(3, sum_bits=3), 1, 2) == [3.125] * 2


@each_class
@pytest.mark.parametrize("wire", ["columns", "", 1, True])
def test_an_unknown_wire_is_refused(kind: type, wire: object) -> None:
    with pytest.raises(ValueError, match=rf"wire must be None or one of .*'compact'.*{wire!r}"):
        kind(wire=wire)


@each_class
@pytest.mark.parametrize("wire", [None, "packed"])
def test_a_wire_is_part_of_the_spec(kind: type, wire: str | None) -> None:
    spec, *_ = kind(wire=wire).specs()
    assert spec.wire == wire


def test_the_compact_wire_can_be_asked_for() -> None:
    params = from_params({"type": "2bit", "threshold": 0.5, "wire": "compact"})
    assert params == tf_gc.TwoBit(0.5, wire="compact")
    assert from_params({"type": "quantized", "wire": "compact"}) == tf_gc.Quantized(wire="compact")
    spec, *_ = params.specs()
    assert spec.wire == "compact"


def test_codes_of_one_bit_have_no_compact_wire() -> None:
    for kind, arguments in ((tf_gc.OneBit, {}), (tf_gc.OneBit, {"threshold": 0.5})):
        with pytest.raises(ValueError, match=r"'packed' for codes of one bit.*got 'compact'"):
            kind(wire="compact", **arguments)
    with pytest.raises(ValueError, match=r"'packed' for codes of one bit.*got 'compact'"):
        tf_gc.Quantized(1, wire="compact")
