"""Gradients that are sent by the params of their variables, or not compressed at all."""

import functools
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.bits import assert_same_bits
from tests.cases import cases
from tests.strategies.helpers import normal, reducer, strategy_of
from tf_gc.steps import warm_up

NAMES = ("first", "inner", "last")
SIZE = 400
Arrays = list[np.ndarray]
gradients = functools.partial(normal, len(NAMES) * [(SIZE,)])


def variables_of(strategy: tf.distribute.Strategy) -> list[tf.Variable]:
    with strategy.scope():
        return [tf.Variable(tf.zeros(SIZE), name=f"model/{name}") for name in NAMES]


def sums_of(params: Any, steps: int = 3, replicas: int = 2) -> list[Arrays]:
    strategy = strategy_of(params, replicas)
    reduce = reducer(strategy, variables_of(strategy))
    return [reduce(gradients(step, replicas))[0] for step in range(steps)]


FIXED = tf_gc.TwoBit(0.5)
WAYS = {
    "exclude": tf_gc.TwoBit(0.5, exclude="inner"),
    "by variable": tf_gc.ByVariable({"inner": tf_gc.NoCompression()}, default=FIXED),
}


@functools.cache
def of_all() -> tuple[list[Arrays], list[Arrays]]:
    """The sums if no variable is compressed, and if each is."""
    return sums_of({"type": "none"}), sums_of(FIXED)


@cases("way", *WAYS)
def test_what_is_excluded_is_summed_as_by_the_stock_strategy(way: str) -> None:
    for step, (mine, stock, compressed) in enumerate(
        zip(sums_of(WAYS[way]), *of_all(), strict=True)
    ):
        assert_same_bits(mine[1], stock[1])
        for i in (0, 2):  # as if no variable were excluded
            assert_same_bits(mine[i], compressed[i])
            assert (mine[i] != stock[i]).any(), step


@cases("replicas", 4, 2)
def test_each_variable_is_summed_as_by_its_own_params(replicas: int) -> None:
    codecs = [
        tf_gc.TwoBit(0.5, plan="scatter_gather"),
        tf_gc.OneBit(0.0),
        tf_gc.Quantized(4, warm_up=False, bypass_size=0),
    ]
    params = tf_gc.ByVariable(dict(zip(NAMES[:2], codecs, strict=False)), default=codecs[2])
    mine = sums_of(params, replicas=replicas)
    for i, codec in enumerate(codecs):
        for each, alone in zip(mine, sums_of(codec, replicas=replicas), strict=True):
            assert_same_bits(each[i], alone[i])


def test_traffic_schedule_and_log_say_what_is_excluded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="absl")
    strategy = strategy_of(tf_gc.TwoBit(0.5, exclude="inner|last"))
    reducer(strategy, variables_of(strategy))(gradients(0))
    traffic, schedule = strategy.traffic, strategy.schedule
    assert schedule.bypass == (1, 2)
    assert "2 are excluded by the pattern 'inner|last' (model/inner, model/last)" in str(schedule)
    assert ": model/first" in str(schedule)
    assert traffic.compressed_tensors == 1
    assert traffic.bypassed_tensors == traffic.excluded_tensors == 2
    assert traffic.sent_bytes == 2 * 4 * SIZE + 16 + 4 * 32
    (line,) = [m for m in caplog.messages if "instead of" in m]
    assert "exclude=('inner|last',)" in line
    assert "2 tensors bypassed (2 excluded)" in line


def test_a_pattern_that_matches_nothing_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    def is_huge(gradient: Any) -> bool:
        return gradient.elements > 10**9

    params = tf_gc.ByVariable(
        {"inner": tf_gc.NoCompression(), "iner": tf_gc.TwoBit(0.25, exclude="lst"), is_huge: None},
        default=FIXED,
    )
    strategy = strategy_of(params)
    for _ in range(2):
        reducer(strategy, variables_of(strategy))(gradients(0))
    said = [m for m in caplog.messages if "matches none of" in m]
    assert len(said) == 3
    for pattern, line in zip(("'iner'", "is_huge", "'lst'"), said, strict=True):
        assert pattern in line
        assert "these 3 variables: model/first, model/inner, model/last" in line


AUTO = tf_gc.TwoBit(bypass_size=0)


@cases("eager", False, True)
def test_each_variable_has_the_warm_up_of_its_params(eager: bool) -> None:
    """A variable without a warm-up is compressed at once, amid the warm-up of the rest."""
    params = tf_gc.ByVariable({"first": FIXED}, default=AUTO)
    runs = {}
    for name, of_run in {"mixed": params, "fixed": FIXED, "none": {"type": "none"}}.items():
        strategy = strategy_of(of_run)
        runs[name] = (strategy, reducer(strategy, variables_of(strategy), eager))
    state = runs["mixed"][0].compression_state
    for step in range(2 * warm_up.PATIENCE):
        now = gradients(step)
        warm = step == 0 or state.warm_up_steps == step
        mine, fixed, stock = (reduce(now)[0] for _, reduce in runs.values())
        assert_same_bits(mine[0], fixed[0])
        for i in (1, 2):
            assert (mine[i] == stock[i]).all() == (warm and state.warm_up_steps == step + 1)
    assert warm_up.PATIENCE <= state.warm_up_steps < 2 * warm_up.PATIENCE
    said = str(runs["mixed"][0].schedule)
    assert "the first steps of buckets [" in said
    assert f"] were in full precision: {state.warm_up_steps} of this run" in said


def trained(params: Any, folder: Path, steps: int = 1) -> tuple[Arrays, str]:
    """Returns what waits in the residuals after some steps, and a checkpoint of it."""
    strategy = strategy_of(params)
    variables = variables_of(strategy)
    reduce = reducer(strategy, variables)
    for step in range(steps):
        reduce(gradients(step))
    state = strategy.compression_state
    path = tf.train.Checkpoint(compression=state).save(folder / "ckpt")
    return [state.total(variable) for variable in variables], path


def restored(params: Any, path: str, replicas: int = 2) -> tuple[Any, tf.train.Checkpoint]:
    strategy = strategy_of(params, replicas)
    checkpoint = tf.train.Checkpoint(compression=strategy.compression_state)
    checkpoint.restore(path)
    return strategy, checkpoint


@cases("replicas, eager", (4, False), (2, True))
def test_what_was_not_sent_of_a_variable_is_applied_when_it_is_excluded(
    tmp_path: Path, replicas: int, eager: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="absl")
    left, path = trained(FIXED, tmp_path)
    strategy, _ = restored(tf_gc.TwoBit(0.5, exclude="inner"), path, replicas)
    variables = variables_of(strategy)
    reduce = reducer(strategy, variables, eager)
    caplog.clear()
    zeros = [np.zeros((replicas, SIZE), np.float32) for _ in NAMES]
    now = gradients(1, replicas)
    first = reduce([zeros[0], now[1], zeros[2]])[0]
    np.testing.assert_allclose(first[1], now[1].sum(axis=0) + left[1], rtol=1e-5, atol=1e-6)
    second = reduce(zeros)[0]
    assert_same_bits(second[1], zeros[1][0])
    for i in (0, 2):
        waiting = strategy.compression_state.total(variables[i]) + first[i] + second[i]
        np.testing.assert_allclose(waiting, left[i], rtol=1e-6, atol=1e-6)
    said = [m for m in caplog.messages if m.startswith("tf_gc: residuals")]
    assert said == ["tf_gc: residuals of 3 variables restored"]


@cases(
    "before, now",
    ("first", "last"),
    *(("last", "(first|last)"), ("none of them", "inner"), ("first", "first")),
)
def test_a_warm_up_goes_on_whatever_is_excluded(tmp_path: Path, before: str, now: str) -> None:
    _, path = trained(tf_gc.TwoBit(bypass_size=0, exclude=before), tmp_path, steps=4)
    strategy, checkpoint = restored(tf_gc.TwoBit(bypass_size=0, exclude=now), path)
    reduce = reducer(strategy, variables_of(strategy))
    reduce(gradients(4))
    assert strategy.compression_state.warm_up_steps == 5
    # Into the same objects, with a function that was traced before.
    reduce(gradients(5))
    checkpoint.restore(path)
    reduce(gradients(4))
    assert strategy.compression_state.warm_up_steps == 5


def test_a_warm_up_that_begins_anew_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, path = trained(tf_gc.TwoBit(bypass_size=0, exclude="first|inner"), tmp_path)
    strategy, _ = restored(AUTO, path)
    variables = variables_of(strategy)[:2]  # with which the warm-up would end
    reducer(strategy, variables)(gradients(0)[:2])
    assert strategy.compression_state.warm_up_steps == 1
    assert [m for m in caplog.messages if "the warm-up starts again" in m]
