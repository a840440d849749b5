"""`strategy.report()`, and the verdict in the log."""

import copy
import dataclasses
import gc
import logging
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.strategies.helpers import normal, reducer, strategy_of, variables_of
from tf_gc import ops

pytestmark = pytest.mark.optimized_graphs

SHAPES = [(40, 60), (3,), (2400,)]
ELEMENTS = 4803
ALL: dict[str, Any] = {"warm_up": False, "bypass_size": 0}


def gradients(seed: int = 1, replicas: int = 2, scale: float = 1.0) -> list[np.ndarray]:
    return [np.float32(scale) * each**3 for each in normal(SHAPES, seed, replicas)]


def verdicts(log: pytest.LogCaptureFixture, count: int) -> list[logging.LogRecord]:
    """Waits for `count` verdicts, then for one too many, and returns them."""

    def found() -> list[logging.LogRecord]:
        return [r for r in log.records if "a step takes" in r.getMessage()]

    deadline = time.monotonic() + 600
    while len(found()) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
    return found()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    # The handler's level; the logger "absl" keeps its own, at which INFO is hidden.
    caplog.set_level(logging.INFO, logger="absl.tf_gc")
    return caplog


def encoded_alone(
    codec: str, threshold: Any, replicas: int = 2, **options: Any
) -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Variable]]:
    """The first replica's message of the first step, its gradients and residuals."""
    mine = [tf.constant(gradient[0]) for gradient in gradients(replicas=replicas)]
    residuals = [tf.Variable(tf.zeros_like(gradient)) for gradient in mine]
    return ops.encode(mine, residuals, codec, threshold, **options), mine, residuals


def not_zero(values: list[tf.Tensor]) -> int:
    return sum(int(np.sum(value != 0)) for value in values)


@cases(
    "params, codec, threshold, eager",
    (tf_gc.Quantized(**ALL), "three_bit", "auto", False),
    (tf_gc.TwoBit(0.5, bypass_size=0), "two_bit", 0.5, True),
    (tf_gc.OneBit(**ALL), "one_bit", "auto", False),
)
def test_density_and_residuals_are_those_of_the_first_replica(
    params: Any, codec: str, threshold: Any, eager: bool
) -> None:
    strategy = strategy_of(params)
    variables = variables_of(strategy, *SHAPES)
    reducer(strategy, variables, eager)(gradients())
    message, mine, residuals = encoded_alone(codec, threshold)
    sent = not_zero(ops.decode(message, mine, codec, threshold))
    ratios = [
        float(tf.norm(residual) / tf.norm(gradient))
        for residual, gradient in zip(residuals, mine, strict=True)
    ]
    report = strategy.report()
    assert (report.measured_step, report.compressed_steps, report.warm_up_steps) == (1, 1, 0)
    assert copy.deepcopy(strategy).report().compressed_steps == 0  # it measures for itself
    assert report.density == pytest.approx(1.0 if codec == "one_bit" else sent / ELEMENTS)
    assert sorted(report.residual_ratios.values()) == pytest.approx(sorted(ratios), rel=1e-4)
    norms = [float(tf.norm(residual)) for residual in residuals]
    total = np.linalg.norm(np.concatenate([g[0].ravel() for g in gradients()]))
    assert report.residual_ratio == pytest.approx(np.linalg.norm(norms) / total, rel=1e-4)
    if codec == "three_bit":
        assert 0.1 < report.density < 0.9


@cases(
    "params, codec, threshold, plan",
    (tf_gc.Quantized(**ALL), "three_bit", "auto", "scatter_gather"),
    (tf_gc.Quantized(**ALL), "three_bit", "auto", "all_gather"),
    (tf_gc.TwoBit(0.5, bypass_size=0), "two_bit", 0.5, "scatter_gather"),
)
def test_every_plan_is_measured(params: Any, codec: str, threshold: Any, plan: str) -> None:
    strategy = strategy_of(dataclasses.replace(params, plan=plan), replicas=4)
    variables = variables_of(strategy, *SHAPES)
    run = reducer(strategy, variables, bucket_bytes=1 << 20)
    run(gradients(replicas=4))
    report = strategy.report()
    if plan == "scatter_gather" and threshold == "auto":
        # The shard that it owns is sent as part of the sum, whatever that is.
        messages, mine, _ = encoded_alone(codec, threshold, 4, shards=4, skip=0)
        decode = {"shards": 4, "replicas": 4}
        others = not_zero(ops.decode_shards(messages, mine, codec, threshold, **decode))
        assert 0.9 * ELEMENTS > others > 0.1 * ELEMENTS
        assert others < report.density * ELEMENTS < others + ELEMENTS / 4 + 128
    else:
        message, mine, _ = encoded_alone(codec, threshold, 4)
        sent = not_zero(ops.decode(message, mine, codec, threshold))
        assert report.density == pytest.approx(sent / ELEMENTS)
    assert {bucket.plan for bucket in report.buckets} == {plan}
    assert report.traffic == strategy.traffic
    assert sum(bucket.sent_bytes or 0 for bucket in report.buckets) == strategy.traffic.sent_bytes


def test_measuring_changes_no_sum() -> None:
    results = []
    for every in (1, 1000):
        strategy = strategy_of(tf_gc.Quantized(**ALL))
        strategy.measure_every(every)
        run = reducer(strategy, variables_of(strategy, *SHAPES))
        results.append([run(gradients(step)) for step in range(5)])
    for one, other in zip(*map(tf.nest.flatten, results), strict=True):
        np.testing.assert_array_equal(one, other)
    for bad in (0, -1, 2.0, True, "all"):
        with pytest.raises(ValueError, match=f"positive integer, got {bad!r}"):
            strategy.measure_every(bad)  # type: ignore[arg-type]


def test_what_it_says_before_the_first_step_and_where_nothing_is_compressed() -> None:
    strategy = strategy_of(None)
    report = strategy.report()
    assert report.traffic is report.compressed is report.density is report.ratio is None
    assert "no step has been compressed so far" in str(report)
    off = strategy_of({"type": "none"})
    assert "nothing is compressed, as compression_params says" in str(off.report())
    reducer(strategy, variables_of(strategy, (3,)))([np.ones((2, 3), "f")])
    assert "every gradient is too small or excluded" in str(strategy.report())


@cases("wire", "compact", "packed")
def test_while_the_warm_up_lasts_it_says_so_and_then_that_it_has_ended(wire: str) -> None:
    strategy = strategy_of(tf_gc.Quantized(wire=wire, bypass_size=0))
    run = reducer(strategy, variables_of(strategy, *SHAPES))

    def said() -> tuple[str, str, str]:
        return str(strategy.schedule), str(strategy.traffic), str(strategy.report())

    for step in range(1, 4):
        run(gradients())
        schedule, traffic, report = said()
        assert f"the first steps are in full precision: {step} so far" in schedule
        assert traffic.endswith(", once the warm-up has ended")
        assert f"steps: {step} in full precision, 0 compressed: the warm-up has not en" in report
        assert traffic in report
        assert all(bucket.sent_bytes is None for bucket in strategy.report().buckets)
    while not strategy.report().compressed_steps:
        run(gradients())
    done = strategy.compression_state.warm_up_steps
    schedule, traffic, report = said()
    assert f"the first steps were in full precision: {done} of this run; the warm" in schedule
    assert "warm-up" not in traffic
    assert f"steps: {done} in full precision, 1 compressed\n" in report


def test_models_that_take_turns_have_one_verdict_and_a_later_one_its_own(
    log: pytest.LogCaptureFixture,
) -> None:
    strategy = strategy_of(tf_gc.Quantized())
    first, second, third = (reducer(strategy, variables_of(strategy, *SHAPES)) for _ in range(3))
    for step in range(60):
        for run in (first, second):
            run(gradients(step, scale=1 / (step + 1)))
    (record,) = verdicts(log, 1)
    assert (record.levelno == logging.WARNING) == ("makes" in record.getMessage())
    report = strategy.report()
    assert report.ratio == report.comparison.ratio
    says = "gradients are compressed: " if report.comparison.shows_nothing else "ratio "
    assert says in record.getMessage()
    assert (report.comparison.low > 1) == ("compression pays" in record.getMessage())
    assert report.warm_up_steps < 40
    assert report.warm_up_steps + report.compressed_steps == 60
    assert report.full_precision.steps == report.warm_up_steps - 1
    text = repr(report)  # which notebooks show
    assert text == str(report)
    assert repr(strategy.traffic) == str(strategy.traffic)
    for part in ("at the end of the warm-up", "bucket 0", "norm of residuals", "not zero"):
        assert part in text
    for step in range(60):
        for run in (first, third):  # which is built when all verdicts have been logged
            run(gradients(step, scale=1 / (step + 1)))
    assert len(verdicts(log, 2)) == 2


def test_a_warm_up_amid_compressed_gradients_is_no_step_without_compression() -> None:
    params = tf_gc.ByVariable({lambda gradient: len(gradient.shape) == 2: tf_gc.TwoBit(0.5)})
    strategy = strategy_of(params)
    run = reducer(strategy, variables_of(strategy, *SHAPES))
    for step in range(40):
        run(gradients(step, scale=1 / (step + 1)))
    report = strategy.report()
    assert len(report.buckets) == 2
    assert 10 <= report.warm_up_steps < 40
    assert report.full_precision is report.comparison is None
    assert report.compressed is not None


def test_a_warm_up_that_does_not_end_is_said_once(log: pytest.LogCaptureFixture) -> None:
    strategy = strategy_of(tf_gc.Quantized())
    growing, ends = (reducer(strategy, variables_of(strategy, *SHAPES)) for _ in range(2))

    def said() -> list[str]:
        strategy.extended.compressed_all_reduce._measurement.log_verdicts()
        return [m for m in log.messages if "warm-up has not ended" in m]

    for step in range(80):
        ends(gradients(scale=1 / (step + 1)))
    for step in range(299):
        growing(gradients(scale=1.01**step))
    assert said() == []
    for step in range(299, 310):
        growing(gradients(scale=1.01**step))
        assert said() == said()[:1]
    (message,) = said()
    assert "Quantized(warm_up=False)" in message
    for step in range(60):
        growing(gradients(scale=1 / (step + 1)))
    assert len(said()) == 1
    assert len(verdicts(log, 2)) == 2  # which come all the same


def test_a_loop_of_steps_is_recorded() -> None:
    strategy = strategy_of(tf_gc.Quantized())
    (variable,) = variables_of(strategy, (50, 60))
    batches = tf.random.stateless_normal((80, 2, 50, 60), [1, 2])

    @tf.function
    def loop() -> None:
        for step in tf.range(80):

            def replica_step(step: tf.Tensor = step) -> None:
                replica = tf.distribute.get_replica_context().replica_id_in_sync_group
                (total,) = tf_gc.all_reduce_gradients([(batches[step, replica], variable)])
                variable.assign_sub(0.1 * total)

            strategy.run(replica_step)

    loop()
    report = strategy.report()
    assert report.warm_up_steps == strategy.compression_state.warm_up_steps
    assert report.warm_up_steps + report.compressed_steps == 80
    assert report.compressed.low > 0


def test_nothing_keeps_a_strategy_alive() -> None:
    before = {*threading.enumerate()}
    strategy = strategy_of(tf_gc.Quantized())
    runs: Any = [reducer(strategy, variables_of(strategy, *SHAPES)) for _ in range(2)]
    for run in runs:
        run(gradients())  # not enough for a verdict
    measurement = weakref.ref(strategy.extended.compressed_all_reduce._measurement)
    (thread,) = [t for t in {*threading.enumerate()} - before if t.name == "tf_gc verdict"]
    assert thread.daemon
    del strategy, run, runs
    gc.collect()
    thread.join(20)
    assert measurement() is None
    assert not thread.is_alive()


def test_a_model_that_is_gone_is_forgotten_when_there_is_another() -> None:
    strategy = strategy_of(tf_gc.Quantized(**ALL))
    for number in range(3):
        reducer(strategy, variables_of(strategy, *SHAPES))(gradients())
        gc.collect()
        report = strategy.report()
        assert report.compressed_steps == 1
        assert report.density is not None
        measurement = strategy.extended.compressed_all_reduce._measurement
        # The thread of verdicts may have dropped this one already, whose variables are gone, too.
        assert {steps.number for steps in measurement._to_judge} <= {number}
        assert not measurement.recorder.read(number - 1, ops.Series.STEPS).any()
