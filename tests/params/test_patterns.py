"""Patterns of variables: `exclude` of every codec, and `ByVariable`."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import tf_gc
from tf_gc.params import CompressionParams, Gradient, Uncompressed
from tf_gc.params.patterns import matches


def gradient(path: str, shape: tuple[int, ...] = (100, 100)) -> Gradient:
    return Gradient(path, tf.float32, shape)


def is_vector(gradient: Gradient) -> bool:
    return len(gradient.shape) == 1


class Below:
    def __init__(self, elements: int) -> None:
        self.elements = elements

    def __call__(self, gradient: Gradient) -> bool:
        return gradient.elements < self.elements


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("embeddings", "model/embedding/embeddings", True),
        ("embeddings", "model/embedding/kernel", False),
        (r".*/gamma", "gamma", False),
        ("^dense/kernel$", "dense/kernel", True),
        ("^dense/kernel$", "model/dense/kernel", False),
        ("(?i)LSTM", "model/lstm/lstm_cell/kernel", True),
        (is_vector, "dense/kernel", False),
        (Below(10**4 + 1), "dense/kernel", True),
        (Below(10**4), "dense/kernel", False),
    ],
)
def test_a_pattern_is_searched_for_in_the_path(pattern: Any, path: str, expected: bool) -> None:
    assert matches(pattern, gradient(path)) is expected


def excludes(params: CompressionParams, of: Gradient) -> bool:
    left = params.spec_of(of)
    return isinstance(left, Uncompressed) and left.excluded


@pytest.mark.parametrize("kind", [tf_gc.OneBit, tf_gc.Quantized, tf_gc.Cast, tf_gc.LowRank])
def test_what_is_excluded_has_no_spec(kind: Any) -> None:
    params = kind(exclude=["embeddings", is_vector])
    assert params.spec_of(gradient("dense/kernel")) == params.specs()[0]
    for excluded in (gradient("a/embeddings"), gradient("dense/bias", (4096,))):
        assert excludes(params, excluded)
    assert not excludes(params, gradient("dense/kernel", (1, 1)))
    assert params.patterns() == ("embeddings", is_vector)


def test_one_pattern_or_several() -> None:
    params = tf_gc.TwoBit(exclude=("a",))
    assert params.exclude == ("a",)
    several: list[Any] = ["a", ["a"], {"a"}, iter("a")]
    for same in (tf_gc.TwoBit(exclude=exclude) for exclude in several):
        assert (same, hash(same)) == (params, hash(params))
    assert tf_gc.TwoBit(exclude=is_vector) == tf_gc.TwoBit(exclude=[is_vector])
    names = {f"layer_{i}" for i in range(20)}
    assert tf_gc.TwoBit(exclude=names).exclude == tuple(sorted(names))


def test_params_print_functions_by_name() -> None:
    # All workers of a job compare what they print.
    text = repr(tf_gc.Quantized(exclude=["a", is_vector, Below(3)]))
    assert f"exclude=('a', {__name__}.is_vector, {__name__}.Below)" in text
    rules = tf_gc.ByVariable({is_vector: None, "b": tf_gc.NoCompression()})
    assert f"ByVariable({{{__name__}.is_vector: Quantized(bits=3, " in repr(rules)
    assert "'b': NoCompression()}, default=Quantized(" in repr(rules)


@pytest.mark.parametrize(
    "make",
    [
        lambda pattern: tf_gc.TwoBit(exclude=pattern),
        lambda pattern: tf_gc.Quantized(exclude=["a", pattern]),
        lambda pattern: tf_gc.ByVariable([("a", None), (pattern, tf_gc.TwoBit())]),
    ],
)
def test_what_is_no_pattern_is_named(make: Callable[[Any], Any]) -> None:
    for text in ("(", "*a", "", "[z-a]"):
        with pytest.raises(ValueError, match=f"^(exclude|rules) has .* {re.escape(repr(text))}"):
            make(text)
    for other in (1, None, b"ab", tf_gc.TwoBit):
        with pytest.raises(TypeError, match=r"^(exclude|rules) takes regular expr") as error:
            make(other)
        assert repr(other) in str(error.value)


def test_the_first_rule_that_matches_decides() -> None:
    params = tf_gc.ByVariable(
        {"lstm": tf_gc.Quantized(4), "kernel": {"type": "2bit"}, "gamma": {"type": "none"}},
        default={"type": "1bit"},
    )
    all_params = (tf_gc.Quantized(4), tf_gc.TwoBit(), tf_gc.OneBit())
    four, two, one = (each.specs()[0] for each in all_params)
    assert params.specs() == tuple(spec for each in all_params for spec in each.specs())
    assert params.spec_of(gradient("lstm/kernel")) == four
    assert params.spec_of(gradient("dense/kernel")) == two
    assert params.spec_of(gradient("dense/other")) == one
    assert excludes(params, gradient("normalization/gamma"))
    assert params.patterns() == ("lstm", "kernel", "gamma")


def test_rules_may_have_rules_and_exclude() -> None:
    inner = tf_gc.ByVariable({"b": tf_gc.TwoBit(exclude="c")}, tf_gc.NoCompression())
    params = tf_gc.ByVariable({"a": inner, "b": None})
    assert params != tf_gc.ByVariable({"b": None, "a": inner})  # the order counts
    assert params.spec_of(gradient("a/b")) == tf_gc.TwoBit().specs()[0]
    assert excludes(params, gradient("a/b/c"))
    assert excludes(params, gradient("a/c"))
    for path in ("b/c", "c"):
        assert params.spec_of(gradient(path)) == tf_gc.Quantized().specs()[0]
    assert params.patterns() == ("a", "b", "b", "c")
    # A spec that several rules give is made once.
    assert len(params.specs()) == len(set(params.specs())) == 6


@pytest.mark.parametrize(
    ("rules", "error", "named"),
    [
        (5, TypeError, "rules must be a mapping from patterns .*got 5"),
        ("abc", TypeError, "rules must be a mapping from patterns .*got 'abc'"),
        ([("a",)], TypeError, r"rules must be a mapping from patterns .*\('a',\)"),
        ({"a": {"type": "9bit"}}, ValueError, r"rules\['a'\]\[\"type\"\] must be one of .*'9bit'"),
        ({"a": {"type": "2bit", "threshold": -1}}, ValueError, "threshold must be .*-1"),
        ({"a": "2bit"}, TypeError, r"rules\['a'\] must be None, .* got '2bit'"),
        ({"a": tf_gc.Auto()}, ValueError, "rules and default may have no tf_gc.Auto: .*Auto"),
    ],
)
def test_bad_rules_are_named(rules: Any, error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        tf_gc.ByVariable(rules)
