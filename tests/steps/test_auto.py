"""`tf_gc.Auto`: steps in full precision and compressed ones take turns, and then one way stays."""

import functools
import logging
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.strategies.helpers import check_that_nothing_is_lost, normal, reducer, strategy_of
from tf_gc.params.composed import COMPRESSED, FULL_PRECISION, WAYS
from tf_gc.steps.trial import STEPS, TURN, faster

SHAPES = [(40, 60), (3,), (2400,)]
COLD = tf_gc.Quantized(warm_up=False)
gradients = functools.partial(normal, SHAPES)


def make(params: Any, replicas: int = 2, eager: bool = False) -> tuple[Any, list[Any], Any]:
    strategy = strategy_of(params, replicas)
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(shape), name=f"v{i}") for i, shape in enumerate(SHAPES)]
    return strategy, variables, reducer(strategy, variables, eager)


def residuals(strategy: Any, variables: list[Any]) -> list[np.ndarray]:
    """The residuals of each compressed variable, by replica."""
    state = strategy.compression_state
    return [np.stack([r.numpy() for r in state.residuals_of(variables[i])]) for i in (0, 2)]


def turn(step: int) -> str:
    return WAYS[step // TURN % 2]


@cases(
    "choice, eager, plan",
    (FULL_PRECISION, False, "scatter_gather"),
    (COMPRESSED, True, "all_gather"),
)
def test_each_step_is_that_of_the_way_whose_turn_it_is(choice: str, eager: bool, plan: str) -> None:
    params = tf_gc.Quantized(warm_up=False, plan=plan)
    strategy, variables, run = make(tf_gc.Auto(params, choice), eager=eager)
    exact = make(tf_gc.NoCompression())[2]
    alone, alone_variables, run_alone = make(params)
    run_alone(gradients(0))  # makes the residuals
    before = [np.zeros((2, *SHAPES[i]), "f") for i in (0, 2)]
    for step in range(STEPS + 6):
        now = gradients(step)
        way = turn(step) if step < STEPS else choice
        if way == COMPRESSED:
            for i, left in zip((0, 2), before, strict=True):
                state = alone.compression_state.residuals_of(alone_variables[i])
                for residual, value in zip(state, left, strict=True):
                    residual.assign(value)
            np.testing.assert_equal(run(now), run_alone(now))
            after = residuals(strategy, variables)
            np.testing.assert_equal(after, residuals(alone, alone_variables))
        else:
            given = list(now)
            if step == STEPS:  # what the trial left is sent with the first gradient after it
                for i, left in zip((0, 2), before, strict=True):
                    given[i] = now[i] + left
                before = [0 * left for left in before]
            np.testing.assert_equal(run(now), exact(given))
            after = residuals(strategy, variables)
            np.testing.assert_equal(after, before)
        before = after
    assert strategy.report().trial.chosen == strategy.report().trial.current == choice


@cases("params", None, tf_gc.TwoBit(0.5, plan="scatter_gather"))
def test_a_warm_up_comes_first_nothing_is_lost_and_a_choice_repeats_a_run(params: Any) -> None:
    strategy, variables, run = make(tf_gc.Auto(params))
    given = [gradients(step) for step in range(STEPS + 60)]
    sums = check_that_nothing_is_lost(strategy, variables, run, given, atol=1e-3)
    report, warm = strategy.report(), strategy.compression_state.warm_up_steps
    assert (10 < warm < 40) == (params is None)
    afterwards = STEPS + 60 - warm - STEPS
    compressed = STEPS // 2 + (afterwards if report.trial.chosen == COMPRESSED else 0)
    steps = (report.compressed_steps, report.warm_up_steps)
    assert steps == (compressed, STEPS + 60 - compressed)
    again = make(tf_gc.Auto(params, report.trial.chosen))[2]
    np.testing.assert_equal([again(each) for each in given], sums)


def test_it_says_what_it_is_doing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="absl")
    began = time.monotonic()
    strategy, _, run = make(tf_gc.Auto(COLD, COMPRESSED))
    assert strategy.report().trial is None
    for step in range(STEPS + 1):
        run(gradients(step))
        report = strategy.report()
        way = turn(step) if step < STEPS else COMPRESSED
        assert report.trial.current == way
        chosen = step >= STEPS - 1
        said = f"chosen: {way}; {report.trial.times}" if chosen else f"the latest step: {way}"
        assert f"trial: {said}\n" in str(report)
        assert report.trial.chosen == (None if step < STEPS - 1 else COMPRESSED)
        plan, buckets = ("all_gather", 1) if way == COMPRESSED else ("stock", 0)
        assert strategy.traffic.plan == report.traffic.plan == plan
        assert len(report.buckets) == len(strategy.schedule.buckets) == buckets
    # Density and residuals were measured in the first step after the trial.
    assert report.measured_step == report.compressed_steps == STEPS // 2 + 1
    deadline = time.monotonic() + 600
    while "Auto chooses" not in caplog.text and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
    (said,) = [r.getMessage() for r in caplog.records if "Auto chooses" in r.getMessage()]
    trial = strategy.report().trial
    assert f"chooses {COMPRESSED}: a step takes {trial.times} (" in said
    assert all(0 < seconds < time.monotonic() - began for seconds in trial.seconds)
    for pattern, params in (
        (r"compression_params=(Quantized\(.*?\))\. To repeat", COLD),
        (r"to the bit: (Auto\(.*\))\.", strategy.compression_params),
    ):
        (written,) = re.findall(pattern, said)
        assert eval(written, vars(tf_gc._public)) == params
    (sent,) = [line for line in caplog.messages if "a replica sends" in line]
    assert "all_gather among 2 replicas" in sent


def test_a_checkpoint_has_the_trial_and_a_reset_begins_it_again(tmp_path: Path) -> None:
    strategy, _, run = make(tf_gc.Auto(COLD, COMPRESSED))
    checkpoint = tf.train.Checkpoint(compression=strategy.compression_state)
    saved = {}
    for step in range(STEPS + 4):
        if step in (7, STEPS - 1, STEPS, STEPS + 3):
            saved[step] = checkpoint.save(tmp_path / "checkpoint")
        run(gradients(step))
    again, _, run_again = make(tf_gc.Auto(COLD, COMPRESSED))
    checkpoint = tf.train.Checkpoint(compression=again.compression_state)
    for steps, path in saved.items():  # the first one before the first step, the others later
        checkpoint.restore(path)
        for step in range(steps, STEPS + 8):
            run_again(gradients(step))
            assert again.report().trial.current == (turn(step) if step < STEPS else COMPRESSED)
    again.compression_state.reset()
    run_again(gradients(0))
    assert again.report().trial.current == FULL_PRECISION
    others, _, run_others = make(tf_gc.Auto(COLD), replicas=4)
    tf.train.Checkpoint(compression=others.compression_state).restore(path)
    run_others(gradients(0, replicas=4))
    assert others.report().trial.current == FULL_PRECISION


@cases("steps", STEPS - 1, 2 * TURN)
def test_no_choice_follows_from_times_that_only_another_process_has(
    tmp_path: Path, steps: int
) -> None:
    strategy, _, run = make(tf_gc.Auto(COLD))
    checkpoint = tf.train.Checkpoint(compression=strategy.compression_state)
    for step in range(steps):
        run(gradients(step))
    path = checkpoint.save(tmp_path / "checkpoint")
    again, _, run_again = make(tf_gc.Auto(COLD))
    tf.train.Checkpoint(compression=again.compression_state).restore(path)
    for step in range(steps, STEPS):
        run_again(gradients(step))
    complete = steps < STEPS - TURN  # both had turns in this process as well
    assert (again.report().trial.chosen is not None) == complete
    if complete:
        return
    began = time.monotonic()
    for step in range(STEPS):
        run_again(gradients(step))
        assert again.report().trial.current == turn(step)
    assert again.report().trial.chosen is not None
    assert max(again.report().trial.seconds) < time.monotonic() - began


def test_the_slowest_worker_decides() -> None:
    chosen, slowest = faster(tf.constant([[5, 3], [5, 9]], tf.int64))
    assert int(chosen) == 0
    assert slowest.numpy().tolist() == [5, 9]
    assert int(faster(tf.constant([[5, 3], [5, 4]], tf.int64))[0]) == 1
