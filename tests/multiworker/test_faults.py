"""Faulty links and workers that stand still: right sums or an error in bounded time."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases, matrix
from tests.multiworker import cluster, proxy
from tests.multiworker.cluster import worker_index
from tf_gc import ops

pytestmark = [pytest.mark.multiworker, pytest.mark.waits]

ELEMENTS = 400_000  # 106 KB of codes and scales from each replica
QUIET = 3  # steps before the fault
AUTO = {"type": "2bit", "warm_up": False}
FIXED = {"type": "2bit", "threshold": 0.1}
SLOW = 60_000  # bytes a second: some seconds for a step
# A worker without heartbeats is given up after 10 seconds.
NOTICED = 40
# Either the timeout of the collectives ends a step, or TensorFlow misses heartbeats before.
STILL = ("DeadlineExceededError", "UnavailableError")
# The first call on a connection that was reset says "reset"; the later ones find it closed. Which
# of gRPC's threads reports its error is a matter of chance.
LOST = ("Connection reset", "Broken pipe", "Socket closed")


@dataclasses.dataclass
class Ending:
    """How a step ended: the error's type, "" if it went well; its message; and the time it took."""

    error: str
    message: str
    seconds: float


@dataclasses.dataclass
class Report:
    """The steps of a worker.

    Attributes:
      right: for each step that gave a sum, whether it has the bits of a run without faults.
      seconds: the time that each of them took.
      endings: of the step that failed, and of the one tried after it.
    """

    right: list[bool] = dataclasses.field(default_factory=list)
    seconds: list[float] = dataclasses.field(default_factory=list)
    endings: list[Ending] = dataclasses.field(default_factory=list)


def ending_of(step: Callable[[], Any]) -> Ending:
    start = time.monotonic()
    try:
        step()
        error, message = "", ""
    except tf.errors.OpError as caught:
        error, message = type(caught).__name__, str(caught)
    return Ending(error, message, time.monotonic() - start)


def summing(params: Any, timeout_seconds: float | None) -> Callable[[int], np.ndarray]:
    """Makes a strategy, and returns a function from a step's number to the sum of its gradients."""
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout_seconds)
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(None, options, params)
    with strategy.scope():
        variable = tf.Variable(tf.zeros(ELEMENTS))

    @tf.function(autograph=False)
    def reduce(step: tf.Tensor) -> Any:
        def replica_step() -> tf.Tensor:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            gradient = tf.random.stateless_normal([ELEMENTS], [step, replica], stddev=0.1)
            (total,) = tf_gc.all_reduce_gradients([(gradient, variable)])
            return total

        return strategy.experimental_local_results(strategy.run(replica_step))[0]

    return lambda step: reduce(tf.constant(step)).numpy()


def steps_with(
    params: Any, timeout_seconds: float | None, faults: dict[int, Callable[[], None]], steps: int
) -> Report:
    """Sums gradients, once without faults and once with them.

    Args:
      params: compression_params.
      timeout_seconds: of the collectives.
      faults: what this worker does before a step.
      steps: how many to make; the one that fails and another one are the last.
    """
    quiet = summing(params, timeout_seconds)
    expected = [quiet(step) for step in range(steps)]
    total = summing(params, timeout_seconds)
    report = Report()
    for step in range(steps):
        if step in faults:
            time.sleep(1)  # until all workers are here
            faults[step]()
        sums: list[np.ndarray] = []
        ending = ending_of(lambda step=step, sums=sums: sums.append(total(step)))
        if sums:
            report.right.append(sums[0].tobytes() == expected[step].tobytes())
            report.seconds.append(ending.seconds)
        else:
            report.endings.append(ending)
            if len(report.endings) == 2:
                break
    return report


def ordering(port: int, *order: Any, pause: float = 1) -> Callable[[], None]:
    """A fault of the links, for which the first worker asks."""

    def fault() -> None:
        if worker_index() == 0:
            proxy.order(port, *order)
        time.sleep(pause)

    return fault


def reset_in_a_step(port: int, params: Any) -> Report:
    """All connections are reset in the middle of what they move in a step."""
    faults = {QUIET: ordering(port, "reset", ELEMENTS / 8, pause=0)}
    return steps_with(params, 30, faults, QUIET + 4)


def idle_reset_then_slow(port: int, params: Any) -> Report:
    """Connections are reset between two steps; from another step on the link is slow."""
    faults = {1: ordering(port, "reset"), QUIET: ordering(port, "rate", SLOW)}
    return steps_with(params, 30, faults, QUIET + 1)


def stall(port: int, params: Any, timeout_seconds: float | None) -> Report:
    """From one step on the link moves next to nothing, and stays open."""
    return steps_with(params, timeout_seconds, {QUIET: ordering(port, "rate", 1)}, QUIET + 2)


def stop(victim: int, params: Any, timeout_seconds: float, stops: dict[int, float]) -> Report:
    """Before some steps SIGSTOP stops a worker for some seconds; all others wait.

    Those that fail stay until it goes on, so that it is not their end that it notices.
    """

    def stopping(seconds: float) -> Callable[[], None]:
        def fault() -> None:
            if worker_index() == victim:
                pid = os.getpid()
                signals = f"kill -STOP {pid}; sleep {seconds}; kill -CONT {pid}"
                subprocess.Popen(["sh", "-c", signals]).wait()

        return fault

    faults = {step: stopping(seconds) for step, seconds in stops.items()}
    report = steps_with(params, timeout_seconds, faults, max(stops) + 2)
    if worker_index() != victim:
        time.sleep(max(stops.values()))
    return report


def deadlines(seconds: float) -> list[Ending]:
    """How steps end: one in time, a cancelled one, and collectives with all members or too few.

    Args:
      seconds: the limit of each.
    """
    keys = itertools.count(1 << 10)

    def gather(members: int) -> tf.Tensor:
        key = next(keys)
        return tf.raw_ops.CollectiveGatherV2(
            input=tf.zeros(1),
            group_size=members,
            group_key=key,
            instance_key=key,
            ordering_token=[],
        )

    def fail() -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.Assert(False, ["on purpose"])]):
            return tf.zeros(1)

    def step(collective: Callable[[], tf.Tensor]) -> Ending:
        return ending_of(tf.function(lambda: ops.within(seconds, tf.zeros(1), [], collective)))

    endings = [step(lambda: gather(1)), step(fail)]
    time.sleep(seconds + 1)  # their deadlines are over
    return [*endings, *(step(functools.partial(gather, members)) for members in (1, 2, 1))]


def run(scenario: Callable[..., Report], *arguments: Any, **options: Any) -> list[Report]:
    """Runs a scenario; whatever happened, no sum was wrong and no worker ended by itself."""
    # A process that has made its report may fail to leave a broken cluster in an orderly way.
    outcomes = cluster.run(scenario, *arguments, may_fail=True, **options)
    assert all(outcome.value is not None for outcome in outcomes), outcomes
    reports = [outcome.value for outcome in outcomes]
    for report in reports:
        assert all(report.right), reports
    return reports


def assert_all_fail(reports: list[Report], errors: tuple[str, ...], seconds: float) -> None:
    """Each worker's step fails in time, after those without faults, and so does any other."""
    for report in reports:
        assert len(report.right) >= QUIET - 1, reports  # which one of them may just have missed
        first, second = report.endings
        assert first.error in errors, first
        assert first.seconds < seconds, first
        assert second.error in errors, second
        assert second.seconds < 15, second


@cases(
    "plan, workers, devices",
    ("scatter_gather", 3, 1),
    ("all_gather", 2, 1),
    ("hierarchical", 2, 2),
)
def test_a_reset_in_the_middle_of_a_transfer_ends_the_step_everywhere(
    plan: str, workers: int, devices: int
) -> None:
    params = {**(FIXED if plan == "hierarchical" else AUTO), "plan": plan}
    with proxy.links(workers) as links:
        reports = run(reset_in_a_step, links.port, params, devices=devices, configs=links.configs)
        assert links.resets > 0
    # One that lost nothing itself is told of the end of another's process, or its step takes too
    # long: TensorFlow 2.16 does not always tell.
    assert_all_fail(reports, STILL, NOTICED)
    firsts = [report.endings[0] for report in reports]
    losers = [first for first in firsts if any(words in first.message for words in LOST)]
    assert losers, firsts
    assert {first.error for first in losers} == {"UnavailableError"}, losers


@matrix
def test_a_reset_between_steps_and_a_slow_link_change_no_sum() -> None:
    with proxy.links(2) as links:
        reports = run(idle_reset_then_slow, links.port, AUTO, configs=links.configs)
        assert links.resets > 0
    for report in reports:
        assert len(report.right) == QUIET + 1, report
        assert not report.endings
        assert report.seconds[-1] > 1, "the link was not slow"


@cases("timeout_seconds", 4.0, None)
def test_a_link_that_stands_still_is_an_error(timeout_seconds: float | None) -> None:
    with proxy.links(2) as links:
        reports = run(stall, links.port, AUTO, timeout_seconds, configs=links.configs)
    assert_all_fail(reports, STILL, (timeout_seconds or NOTICED) + 6)


@matrix
@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_stopped_for_longer_than_the_timeout_fails_like_the_others(victim: int) -> None:
    timeout, short, long = 6.0, 2.0, 9.0
    reports = run(stop, victim, AUTO, timeout, {1: short, QUIET: long})
    assert_all_fail(reports, STILL, timeout + 6)
    del reports[victim]
    for report in reports:
        assert short - 1 < report.seconds[1] < timeout


@matrix
def test_only_a_collective_that_takes_too_long_meets_its_deadline() -> None:
    limit = 5.0
    (outcome,) = cluster.run(deadlines, limit, workers=1, may_fail=True)
    in_time, cancelled, later, alone, after = outcome.value
    assert in_time.error == ""
    assert cancelled.error == "InvalidArgumentError"
    assert later.error == ""
    assert alone.error == "DeadlineExceededError"
    assert f"a collective took longer than {limit:g} seconds" in alone.message
    assert alone.seconds > limit - 0.1
    assert after.error == "DeadlineExceededError"  # as after any error of a collective
