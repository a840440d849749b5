"""`compression_params`: what a user may say, and what that compresses."""

import copy
import dataclasses
import inspect
import math
import pickle
import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.strategies.kinds import EXAMPLES
from tf_gc.params import KINDS, CompressionParams, Gradient, Uncompressed, from_params

F64 = tf.float64
QUANTIZED = tf_gc.Quantized()


@pytest.mark.parametrize(
    ("given", "params"),
    [
        (None, QUANTIZED),
        ({"type": "quantized"}, tf_gc.Quantized(bits=3)),
        ({"type": "quantized", "bits": 8, "wire": "compact"}, tf_gc.Quantized(8, wire="compact")),
        ({"type": "2bit"}, tf_gc.TwoBit("auto")),
        ({"type": "2bit", "residual": tf.int8}, tf_gc.TwoBit(residual="int8")),
        ({"type": "2bit", "threshold": 0.5}, tf_gc.TwoBit(0.5)),
        ({"type": "1bit"}, tf_gc.OneBit("auto")),
        ({"type": "1bit", "threshold": 0.5}, tf_gc.OneBit(0.5)),
        ({"type": "low_rank", "rank": 2}, tf_gc.LowRank(2)),
        ({"type": "bfloat16"}, tf_gc.Cast()),
        ({"type": "float16", "exclude": "a"}, tf_gc.Cast(tf.float16, exclude=["a"])),
        ({"type": "none"}, tf_gc.NoCompression()),
        ({"type": "auto"}, tf_gc.Auto(QUANTIZED)),
        ({"type": "auto", "params": {"type": "2bit"}}, tf_gc.Auto(tf_gc.TwoBit())),
        (
            {"type": "by_variable", "rules": {"a": {"type": "2bit"}}},
            tf_gc.ByVariable([("a", tf_gc.TwoBit())], QUANTIZED),
        ),
    ],
    ids=str,
)
def test_what_stands_for_params(given: Any, params: CompressionParams) -> None:
    assert from_params(given) == params
    assert hash(from_params(given)) == hash(params)
    assert from_params(params) is params


def a_predicate(gradient: Gradient) -> bool:
    return gradient.sparse


NESTED = tf_gc.ByVariable(
    [("a", tf_gc.OneBit(0.5)), ("a", tf_gc.TwoBit()), ("b", None)],
    tf_gc.ByVariable({"c": tf_gc.Cast(exclude=["d", "e"])}, tf_gc.NoCompression()),
)


@pytest.mark.parametrize(
    "params",
    [*map(from_params, EXAMPLES.values()), NESTED, tf_gc.Auto(NESTED, "compressed")],
    ids=lambda params: type(params).__name__,
)
def test_each_kind_is_a_plain_value(params: Any) -> None:
    assert dataclasses.is_dataclass(params)
    arguments = {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
    assert [*inspect.signature(type(params)).parameters] == [*arguments] == [*vars(params)]
    same = [
        type(params)(**arguments),
        *(dataclasses.replace(params, **{name: value}) for name, value in arguments.items()),
        eval(repr(params), vars(tf_gc._public)),
        copy.copy(params),
        copy.deepcopy(params),
        pickle.loads(pickle.dumps(params)),
    ]
    for each in same:
        assert (each, hash(each), repr(each)) == (params, hash(params), repr(params))
        assert each.specs() == params.specs()
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.other = 1
    if "exclude" in arguments:
        with_function = dataclasses.replace(params, exclude=["x", a_predicate])
        assert pickle.loads(pickle.dumps(with_function)) == copy.deepcopy(with_function)
        assert with_function == dataclasses.replace(with_function) != params


def test_each_kind_has_the_form_of_a_dict() -> None:
    assert {example["type"] for example in EXAMPLES.values()} == KINDS.keys()
    for example in EXAMPLES.values():
        name, params = example["type"], from_params(example)
        arguments = {
            each: getattr(params, each) for each in inspect.signature(KINDS[name]).parameters
        }
        assert from_params({"type": name, **arguments}) == params


def test_params_print_all_their_arguments_in_order() -> None:
    # All workers compare the printed text.
    size, sparse = "bypass_size=2048, plan='auto'", "sparse=None, sparse_residual_bytes=67108864"
    scaled = f"sum_bits=4, warm_up=True, wire=None, exclude=(), {sparse}, residual='float32'"
    assert repr(QUANTIZED) == f"Quantized(bits=3, {size}, {scaled})"
    of_numpy = tf_gc.Quantized(np.int64(2), bypass_size=np.int8(3), sum_bits=np.int32(2))
    assert repr(of_numpy) == repr(tf_gc.Quantized(2, 3, sum_bits=2))


@pytest.mark.parametrize(
    ("kind", "words", "good", "bad"),
    [
        (tf_gc.TwoBit, "a positive, finite", (0.5, 1, 2.0**-126), (0, -0.5, 1e-50, 2.0**-127)),
        (tf_gc.OneBit, "a finite", (0, -1, 1e-40, -(2.0**119)), ()),
    ],
)
def test_thresholds(kind: Any, words: str, good: Any, bad: Any) -> None:
    for threshold in (*good, np.float32(0.1), 2.0**119):
        assert kind(threshold).threshold == float(threshold)
    too_large = (math.inf, -math.inf, math.nan, 1e39, 10**400, 2.0**120, -(2.0**120))
    for threshold in (*bad, *too_large, True, None, "0.5", "automatic", [0.5], 1j):
        message = re.escape(f'threshold must be "auto" or {words} number (')
        with pytest.raises(ValueError, match=f"{message}.*got {re.escape(repr(threshold))}$"):
            kind(threshold)


@pytest.mark.parametrize(
    ("name", "allowed", "values"),
    [
        ("bits", "one of [1, 2, 3, 4, 8]", (0, 5, 6, 7, 9, 3.0, True, "3", None)),
        ("bypass_size", "None or a number of elements from 0", (-1, 1.5, True, "0")),
        ("plan", "one of ['auto', 'all_gather'", ("ring", None, 1)),
        ("sum_bits", "None or one of [3, 4] where an element t", (0, 2, 5, True, 3.0, "3")),
        ("warm_up", "None, True or False", (0, 1, "yes")),
        (
            "wire",
            "None or one of ['packed', 'compact'] for codes of 3 bits",
            ("columns", "", 1, True),
        ),
        ("sparse", "None, True or False", (0, 1, "yes")),
        ("sparse_residual_bytes", "a number of bytes from 0", (-1, 0.5, None, True)),
        ("residual", "one of ['float32', 'bfloat16', 'int8']", ("float16", None, tf.float64)),
    ],
)
def test_other_values_are_refused(name: str, allowed: str, values: tuple[Any, ...]) -> None:
    for value in values:
        words = re.escape(f"{name} must be {allowed}")
        with pytest.raises(ValueError, match=f"^{words}.*, got {re.escape(repr(value))}$"):
            tf_gc.Quantized(**{name: value})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tf_gc.LowRank(0), "rank must be from 1 to 64, got 0"),
        (lambda: tf_gc.LowRank(65), "rank must be from 1 to 64, got 65"),
        (lambda: tf_gc.Cast("half"), "dtype must be one of ['bfloat16', 'float16'], got 'half'"),
        (lambda: tf_gc.Cast(tf.float64), "dtype must be one of ['bfloat16', 'float16'], got"),
        (lambda: tf_gc.TwoBit(sum_bits=4), "one of [2, 3] where an element takes 2 bits, got 4"),
        (lambda: tf_gc.OneBit(sum_bits=2), "one of [1, 3] where an element takes 1 bits, got 2"),
        (lambda: tf_gc.OneBit(wire="compact"), "one of ['packed'] for codes of 1 bits, got 'comp"),
        (lambda: tf_gc.OneBit(0.5, sum_bits=1), "sum_bits=1 is for threshold='auto': with"),
        (lambda: tf_gc.TwoBit(0.5, sum_bits=0), "sum_bits=0 is for threshold='auto'"),
        (lambda: tf_gc.TwoBit(0.5, warm_up=True), "warm_up=True is for threshold='auto'"),
        (lambda: tf_gc.TwoBit(0.5, warm_up=1), "warm_up=1 is for threshold='auto'"),
        (lambda: tf_gc.TwoBit(0.5, sparse=True), "sparse=True is for threshold='auto': with"),
        (
            lambda: tf_gc.Quantized(8, warm_up=True),
            "warm_up=True is for codes with residuals, and 8",
        ),
        (
            lambda: tf_gc.Quantized(8, sparse_residual_bytes=0),
            "sparse_residual_bytes=0 is for codes",
        ),
        (
            lambda: tf_gc.Quantized(8, residual="bfloat16"),
            "residual='bfloat16' is for codes with residuals, and 8",
        ),
        (lambda: tf_gc.Quantized(8, sum_bits=4), "one of [8] where an element takes 8 bits, got 4"),
        (
            lambda: tf_gc.TwoBit(0.5, residual="bfloat16"),
            "residual='bfloat16' is for threshold='auto'",
        ),
        (lambda: tf_gc.Auto({"type": "none"}), "params must say what is compressed, for instance"),
        (lambda: tf_gc.Auto(tf_gc.Auto()), "params must say what is compressed, for instance"),
        (lambda: tf_gc.Auto(choice=""), "choice must be None or "),
        (lambda: tf_gc.ByVariable({}, tf_gc.Auto()), "rules and default may have no tf_gc.Auto"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        make()


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"type": "3bit"}, r"compression_params\[\"type\"\] must be one of .*'2bit'.*got '3bit'"),
        ({"type": ["2bit"]}, r"must be one of .*got \['2bit'\]"),
        ({"threshold": 0.5}, r"compression_params\[\"type\"\] must be one of .*, got None"),
        ({"type": "2bit", "treshold": 0.5}, "compression_params: .*'treshold'; .*'threshold'"),
        ({"type": "2bit", "bits": 2}, "'bits'; type '2bit' allows"),
        ({"type": "none", "threshold": 0.5}, r"'threshold'; type 'none' allows \['type'\]"),
        ({"type": "bfloat16", "dtype": "float16"}, "'dtype'; type 'bfloat16' allows"),
        ({"type": "low_rank", "residual": "bfloat16"}, "'residual'; type 'low_rank' allows"),
        ({"type": "auto", 5: 1}, "type 'auto' allows"),
        ({"type": "by_variable"}, "missing .*'rules'; type 'by_variable' allows"),
        ({"type": "by_variable", "rules": {}, "default": {"type": "9bit"}}, "default.*9bit"),
        ({"type": "auto", "params": {"type": "9bit"}}, "params.*9bit"),
    ],
    ids=str,
)
def test_wrong_types_and_keys_are_named(params: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        tf_gc.CompressedMirroredStrategy(["CPU:0"], params)
    for other in ("2bit", 0.5, [params], tf_gc.TwoBit):
        with pytest.raises(TypeError, match="compression_params must be None, a value such as"):
            from_params(other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("params", "dtype", "elements", "sparse", "reason"),
    [
        (tf_gc.Quantized(exclude=["x", "table"]), F64, 9, True, "excluded by the pattern 'table'"),
        (tf_gc.NoCompression(), tf.float32, 1 << 20, False, "excluded by NoCompression()"),
        (tf_gc.Quantized(sparse=True), F64, 1 << 20, True, "dtype float64: .*, so use float32"),
        (QUANTIZED, tf.int32, 1 << 20, False, "dtype int32: Quantized .* float16, bfloat16$"),
        (tf_gc.LowRank(), F64, 9, True, "dtype float64: .* float32, float16, bfloat16, so use"),
        (tf_gc.Cast(), tf.float16, 1 << 20, False, "dtype float16: Cast compresses float32$"),
        (QUANTIZED, tf.float32, 2047, False, "fewer elements than bypass_size=2048, too few"),
        (tf_gc.Cast(), tf.float32, 2047, False, "fewer elements than bypass_size=2048"),
        (tf_gc.Quantized(sparse=True), tf.float32, 9, True, "fewer elements than bypass_size"),
        (tf_gc.TwoBit(0.5), tf.float32, 0, False, "have no elements"),
        (QUANTIZED, tf.float32, (1 << 18) - 1, True, r"262,144 .* Quantized\(sparse=True\) comp"),
        (tf_gc.LowRank(), tf.float32, 1 << 17, True, r"262,144 .* Quantized\(sparse=True\)"),
        (tf_gc.TwoBit(sparse=False), tf.float32, 1 << 20, True, "and sparse=False: sparse=True c"),
        (tf_gc.OneBit(0.0), tf.float32, 1 << 20, True, "a fixed threshold cannot encode"),
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
    assert isinstance(left, Uncompressed)
    assert re.search(reason, left.reason), left.reason
    assert left.path == "table"
    assert left.excluded == ("excluded" in reason)


DENSE, WITH_RESIDUAL, WITHOUT = range(3)


@pytest.mark.parametrize(
    ("params", "dtype", "elements", "sparse", "expected"),
    [
        *((QUANTIZED, d, 2048, False, DENSE) for d in (tf.float32, tf.float16, tf.bfloat16)),
        (tf_gc.Quantized(bypass_size=100), tf.float32, 100, False, DENSE),
        (tf_gc.TwoBit(0.5), tf.float32, 1, False, DENSE),
        (tf_gc.Cast(), tf.float32, 2048, False, DENSE),
        (tf_gc.LowRank(), tf.float32, 2048, False, DENSE),
        (QUANTIZED, tf.float32, 1 << 18, True, WITH_RESIDUAL),
        (tf_gc.Quantized(sparse=True), tf.float32, 2048, True, WITH_RESIDUAL),
        (tf_gc.LowRank(), tf.float32, 1 << 24, True, WITH_RESIDUAL),
        (QUANTIZED, tf.float32, 1 << 24, True, WITH_RESIDUAL),
        (QUANTIZED, tf.bfloat16, (1 << 24) + 1, True, WITHOUT),
        (tf_gc.LowRank(), tf.float32, (1 << 24) + 1, True, WITHOUT),
    ],
    ids=str,
)
def test_what_is_compressed(
    params: CompressionParams, dtype: tf.DType, elements: int, sparse: bool, expected: int
) -> None:
    spec = params.spec_of(Gradient("table", dtype, (elements, 1), sparse))
    assert spec == params.specs()[expected]


def test_what_params_ask_for() -> None:
    params = tf_gc.Quantized(2, plan="all_gather", sum_bits=2, wire="packed", warm_up=False)
    dense, with_residual, without = params.specs()
    assert (dense.plan, dense.wire, dense.warm_up) == ("all_gather", "packed", False)
    assert [rows.layers for rows in (with_residual, without)] == [1, 2]
    assert {rows.kind for rows in (with_residual, without)} == {"two_bit"}
    assert all(spec.warm_up for spec in tf_gc.LowRank().specs())
    assert not any(spec.warm_up for each in (0.5, 1) for spec in tf_gc.TwoBit(each).specs())
    assert [spec.warm_up for spec in tf_gc.Cast().specs()] == [False]
    for bits, same in ((1, tf_gc.OneBit()), (2, tf_gc.TwoBit()), (3, tf_gc.LowRank())):
        assert tf_gc.Quantized(bits).specs() == same.specs()[:3]
    low_rank = tf_gc.LowRank(exclude="embeddings")
    table = Gradient("table", tf.float32, (4096, 4096), sparse=True)
    assert low_rank.spec_of(table) == low_rank.specs()[WITH_RESIDUAL]
    assert isinstance(low_rank.spec_of(dataclasses.replace(table, path="embeddings")), Uncompressed)


@pytest.mark.parametrize(
    ("params", "bits"),
    [
        (tf_gc.OneBit(), [1.125, 3.125, 3.125]),
        (tf_gc.OneBit(sum_bits=1), [1.125] * 3),
        (tf_gc.OneBit(0), [1.125, 4, 16]),
        (tf_gc.TwoBit(), [2.125, 3.125, 3.125]),
        (tf_gc.TwoBit(sum_bits=2), [2.125] * 3),
        (tf_gc.Quantized(3, sum_bits=3), [3.125] * 3),
        (QUANTIZED, [3.125, 4.125, 4.125]),
        (tf_gc.Quantized(4), [4.125] * 3),
        (tf_gc.Quantized(8), [8.125] * 3),
        (tf_gc.Cast(), [16] * 3),
    ],
    ids=str,
)
def test_bits_of_a_message_and_of_a_sum(params: CompressionParams, bits: list[float]) -> None:
    assert [params.specs()[0].codec.bits(n) for n in (1, 2, 128)] == bits
