"""`tf_gc.Auto`: steps that try each way to sum gradients, and then take one of them."""

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
from tests.strategies.helpers import cpus, reducer
from tf_gc.steps.trial import ROUNDS, TURN

SHAPES = [(40, 60), (3,), (2400,)]
FULL, GATHER, SCATTER = "full precision", "all_gather, packed", "scatter_gather, packed"
NAMES = (FULL, GATHER, SCATTER)
STEPS = ROUNDS * TURN * len(NAMES)
COLD = tf_gc.Quantized(warm_up=False)
SINGLE = {
    FULL: tf_gc.NoCompression(),
    GATHER: tf_gc.Quantized(plan="all_gather", warm_up=False),
    SCATTER: tf_gc.Quantized(plan="scatter_gather", warm_up=False),
}


def gradients(step: int, replicas: int = 2) -> list[np.ndarray]:
    random = np.random.default_rng(step)
    return [random.standard_normal((replicas, *shape)).astype("f") for shape in SHAPES]


def variables_of(strategy: Any) -> list[tf.Variable]:
    with strategy.scope():
        return [tf.Variable(tf.zeros(shape), name=f"v{i}") for i, shape in enumerate(SHAPES)]


def make(params: Any, replicas: int = 2, eager: bool = False) -> tuple[Any, list[Any], Any]:
    strategy = tf_gc.CompressedMirroredStrategy(cpus(replicas), params)
    variables = variables_of(strategy)
    return strategy, variables, reducer(strategy, variables, eager)


def residuals(strategy: Any, variables: list[Any]) -> list[list[np.ndarray]]:
    """The residuals of each compressed variable, by replica."""
    state = strategy.compression_state
    return [[r.numpy() for r in state.residuals_of(variables[i])] for i in (0, 2)]


def assert_same(left: Any, right: Any) -> None:
    for mine, other in zip(left, right, strict=True):
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_array_equal(a, b)


def turn(step: int) -> str:
    return NAMES[step // TURN % len(NAMES)]


@cases("choice, eager", (FULL, False), (GATHER, True), (SCATTER, False))
def test_each_step_is_that_of_its_candidate(choice: str, eager: bool) -> None:
    strategy, variables, run = make(tf_gc.Auto(COLD, choice), eager=eager)
    alone = {name: make(params) for name, params in SINGLE.items()}
    before = [[np.zeros(SHAPES[i], "f")] * 2 for i in (0, 2)]
    for step in range(STEPS + 6):
        now = gradients(step)
        name = turn(step) if step < STEPS else choice
        other_strategy, other_variables, other_run = alone[name]
        if name == FULL:
            given = now
            if step == STEPS:  # what the trial left is sent with the first gradient after it
                given = list(now)
                for i, left in zip((0, 2), before, strict=True):
                    given[i] = now[i] + np.stack(left)
        else:
            given = now
            if not other_strategy.compression_state:
                other_run(now)  # makes the residuals
            state = other_strategy.compression_state
            for i, left in zip((0, 2), before, strict=True):
                for residual, value in zip(
                    state.residuals_of(other_variables[i]), left, strict=True
                ):
                    residual.assign(value)
        assert_same(run(now), other_run(given))
        after = residuals(strategy, variables)
        if name != FULL:
            assert_same(after, residuals(other_strategy, other_variables))
        elif step == STEPS:
            assert not any(value.any() for of_variable in after for value in of_variable)
        else:
            assert_same(after, before)
        before = after
    assert strategy.report().trial.chosen == strategy.report().trial.current == choice


@cases("params", None, tf_gc.TwoBit(0.5, plan="scatter_gather"))
def test_nothing_is_lost_and_a_choice_repeats_a_run(params: Any) -> None:
    strategy, variables, run = make(tf_gc.Auto(params))
    sums = [run(gradients(step)) for step in range(STEPS + 60)]
    for i in (0, 2):
        given = sum(gradients(step)[i].sum(0) for step in range(len(sums)))
        left = strategy.compression_state.total(variables[i])
        sent = sum(of_step[0][i] for of_step in sums)
        np.testing.assert_allclose(sent + (0 if left is None else left), given, atol=1e-3)
    chosen = strategy.report().trial.chosen
    assert chosen is not None
    again = make(tf_gc.Auto(params, chosen))[2]
    for step, before in enumerate(sums):
        assert_same(before, again(gradients(step)))


def test_a_warm_up_comes_first() -> None:
    strategy, _, run = make(tf_gc.Auto(choice=GATHER))
    for step in range(STEPS + 40):
        run([gradient / (step + 1) for gradient in gradients(step)])
    report = strategy.report()
    warm = strategy.compression_state.warm_up_steps
    assert 10 < warm < 30
    assert report.warm_up_steps == warm + STEPS // 3
    assert report.compressed_steps == 40 + 2 * STEPS // 3 - warm


def test_it_says_what_it_is_doing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="absl")
    began = time.monotonic()
    strategy, _, run = make(tf_gc.Auto(COLD, SCATTER))
    assert strategy.report().trial is None
    assert f"tries {FULL}; {GATHER}; {SCATTER}" in caplog.text
    for step in range(STEPS):
        run(gradients(step))
        report = strategy.report()
        assert report.trial.candidates == NAMES
        assert report.trial.current == turn(step)
        assert report.trial.chosen == (None if step < STEPS - 1 else SCATTER)
        plan = "stock" if turn(step) == FULL else turn(step).split(",")[0]
        assert strategy.traffic.plan == report.traffic.plan == plan
        assert (
            len(report.buckets) == len(strategy.schedule.buckets) == (0 if plan == "stock" else 1)
        )
    deadline = time.monotonic() + 600
    while "Auto chooses" not in caplog.text and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
    (said,) = [r.getMessage() for r in caplog.records if "Auto chooses" in r.getMessage()]
    trial = strategy.report().trial
    assert f"chooses {SCATTER}: a step takes {trial.times} (" in said
    assert all(0 < seconds < time.monotonic() - began for seconds in trial.seconds)
    written = re.search(r"compression_params=(Quantized\(.*?\))\.", said)
    assert written is not None
    assert (
        eval(written[1], vars(tf_gc)) == trial.equivalent == SINGLE[SCATTER].sent_by("", "packed")
    )
    repeated = re.search(r"to the bit: (Auto\(.*\))\.", said)
    assert repeated is not None
    assert eval(repeated[1], vars(tf_gc)) == strategy.compression_params


def test_a_checkpoint_has_the_trial(tmp_path: Path) -> None:
    strategy, _, run = make(tf_gc.Auto(COLD, GATHER))
    checkpoint = tf.train.Checkpoint(compression=strategy.compression_state)
    saved = {}
    for step in range(STEPS + 4):
        if step in (7, STEPS - 1, STEPS, STEPS + 3):
            saved[step] = checkpoint.save(tmp_path / "checkpoint")
        run(gradients(step))
    again, _, run_again = make(tf_gc.Auto(COLD, GATHER))
    checkpoint = tf.train.Checkpoint(compression=again.compression_state)
    for steps, path in saved.items():  # the first one before the first step, the others later
        checkpoint.restore(path)
        for step in range(steps, STEPS + 8):
            run_again(gradients(step))
            assert again.report().trial.current == (turn(step) if step < STEPS else GATHER)


@cases("steps", STEPS - 1, TURN * len(NAMES))
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
    complete = steps < STEPS - TURN  # all candidates had turns in this process as well
    assert (again.report().trial.chosen is not None) == complete
    if complete:
        return
    began = time.monotonic()
    for step in range(STEPS):
        run_again(gradients(step))
        assert again.report().trial.current == turn(step)
    assert again.report().trial.chosen is not None
    assert max(again.report().trial.seconds) < time.monotonic() - began


def test_what_is_reported_was_measured_of_the_candidate() -> None:
    strategy, _, run = make(tf_gc.Auto(COLD, SCATTER))
    for step in range(STEPS + 1):
        run(gradients(step))
    report = strategy.report()
    assert report.measured_step == report.compressed_steps == 2 * STEPS // 3 + 1
    assert report.trial.current == SCATTER


def test_with_other_replicas_the_trial_begins_anew(tmp_path: Path) -> None:
    strategy, _, run = make(tf_gc.Auto(COLD, SCATTER))
    for step in range(STEPS + 1):
        run(gradients(step))
    checkpoint = tf.train.Checkpoint(compression=strategy.compression_state)
    path = checkpoint.save(tmp_path / "checkpoint")
    again, _, run_again = make(tf_gc.Auto(COLD), replicas=4)
    tf.train.Checkpoint(compression=again.compression_state).restore(path)
    run_again(gradients(0, replicas=4))
    assert again.report().trial.current == FULL


def test_reset_begins_it_again() -> None:
    strategy, _, run = make(tf_gc.Auto(COLD, SCATTER))
    for step in range(STEPS + 1):
        run(gradients(step))
    assert strategy.report().trial.current == SCATTER
    strategy.compression_state.reset()
    run(gradients(0))
    assert strategy.report().trial.current == FULL


def test_a_plan_or_wire_that_is_given_is_not_tried_otherwise() -> None:
    params = tf_gc.ByVariable(
        {"v0": tf_gc.Quantized(4, plan="scatter_gather", warm_up=False)}, COLD
    )
    strategy, _, run = make(tf_gc.Auto(params, GATHER))
    for step in range(STEPS + 2):
        run(gradients(step))
    assert sorted(strategy.report().trial.candidates) == sorted(NAMES)
    assert {b.variables: b.reducer.plan for b in strategy.schedule.buckets} == {
        ("v0",): "scatter_gather",
        ("v2",): "all_gather",
    }


def test_wrong_arguments_are_errors() -> None:
    for bad in ({"type": "none"}, tf_gc.Auto(), tf_gc.ByVariable({}, tf_gc.NoCompression())):
        with pytest.raises(ValueError, match="params must say what is compressed"):
            tf_gc.Auto(bad)
    for choice in ("", 3, True):
        with pytest.raises(ValueError, match=f"choice must be None or the name .*got {choice!r}"):
            tf_gc.Auto(choice=choice)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"rules and default may have no tf_gc.Auto"):
        tf_gc.ByVariable({"v0": tf_gc.Auto()})
    with pytest.raises(
        ValueError, match=re.escape(f"one of {list(NAMES)} here, got 'hierarchical'")
    ):
        make(tf_gc.Auto(choice="hierarchical"))
    assert tf_gc.params.from_params({"type": "auto", "choice": GATHER}) == tf_gc.Auto(None, GATHER)


def test_a_session_is_an_error() -> None:
    with tf.Graph().as_default():
        strategy = tf_gc.CompressedMirroredStrategy(cpus(2), tf_gc.Auto(COLD))
        variables = variables_of(strategy)
        with pytest.raises(ValueError, match=r"cannot try anything in a graph for a tf.compat.v1"):
            strategy.run(lambda: tf_gc.all_reduce_gradients([(tf.ones(SHAPES[0]), variables[0])]))
