"""Faulty links and workers that stand still: right sums or an error in bounded time."""

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
    # For each step that gave a sum: whether it has the bits of a run without faults, and its time.
    right: list[bool]
    seconds: list[float]
    endings: list[Ending]  # of the step that failed, and of the one tried after it


def ending_of(step: Callable[[], Any]) -> Ending:
    start = time.monotonic()
    try:
        step()
        error, message = "", ""
    except tf.errors.OpError as caught:
        error, message = type(caught).__name__, str(caught)
    return Ending(error, message, time.monotonic() - start)


def summing(timeout_seconds: float | None, plan: str) -> Callable[[int], np.ndarray]:
    """Makes a strategy, and returns a function from a step's number to the sum of its gradients."""
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout_seconds)
    params = {"type": "2bit", "warm_up": False, "plan": plan}
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(None, options, params)
    with strategy.scope():
        variable = tf.Variable(tf.zeros(ELEMENTS))

    def replica_step(step: tf.Tensor) -> tf.Tensor:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        gradient = tf.random.stateless_normal([ELEMENTS], [step, replica], stddev=0.1)
        return tf_gc.all_reduce_gradients([(gradient, variable)])[0]

    reduce = tf.function(lambda step: strategy.run(replica_step, [step]), autograph=False)
    return lambda step: reduce(tf.constant(step)).numpy()


def steps_with(
    faults: dict[int, Callable[[], None]], steps: int, timeout: float | None, plan: str = "auto"
) -> Report:
    """Sums gradients, once without faults and once with what this worker does before some steps."""
    quiet = summing(timeout, plan)
    expected = [quiet(step) for step in range(steps)]
    total = summing(timeout, plan)
    report = Report([], [], [])
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


def ordered(port: int, orders: dict[int, tuple[str, float]], *arguments: Any) -> Report:
    """The first worker asks for faults of the links before some steps."""

    def fault(order: tuple[str, float]) -> None:
        if worker_index() == 0:
            proxy.order(port, *order)
        time.sleep(1)

    faults = {step: functools.partial(fault, order) for step, order in orders.items()}
    return steps_with(faults, *arguments)


def stop(victim: int, timeout: float, stops: dict[int, float]) -> Report:
    """Before some steps SIGSTOP stops a worker for some seconds; all others wait.

    Those that fail stay until it goes on, so that it is not their end that it notices.
    """

    def fault(seconds: float) -> None:
        if worker_index() == victim:
            pid = os.getpid()
            signals = f"kill -STOP {pid}; sleep {seconds}; kill -CONT {pid}"
            subprocess.Popen(["sh", "-c", signals]).wait()

    faults = {step: functools.partial(fault, seconds) for step, seconds in stops.items()}
    report = steps_with(faults, max(stops) + 2, timeout)
    if worker_index() != victim:
        time.sleep(max(stops.values()))
    return report


def deadlines() -> list[Ending]:
    """How steps end: one in time, a cancelled one, one with a member that comes late."""
    keys = itertools.count(1 << 10)

    def gather(late: float | None = None) -> tf.Tensor:
        """Gathers by itself, or with a member that comes after `late` seconds."""
        key, size = next(keys), 1 if late is None else 2
        member = functools.partial(
            tf.raw_ops.CollectiveGatherV2,
            group_size=size,
            group_key=key,
            instance_key=key,
            ordering_token=[],
        )
        if late is not None:
            with tf.device("CPU:1"):
                member(input=tf.py_function(lambda: time.sleep(late) or 0.0, [], tf.float32)[None])
        return member(input=tf.zeros(1))

    def fail() -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.Assert(False, ["on purpose"])]):
            return tf.zeros(1)

    def step(collective: Callable[[], tf.Tensor], seconds: float = 5.0) -> Ending:
        return ending_of(tf.function(lambda: ops.within(seconds, tf.zeros(1), [], collective)))

    endings = [step(gather), step(fail)]
    time.sleep(6)  # their deadlines are over
    return [*endings, step(gather), step(lambda: gather(late=7.5), 4.0), step(gather)]


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


def test_a_reset_in_the_middle_of_a_transfer_ends_the_step_everywhere() -> None:
    with proxy.Links(3) as links:
        orders = {QUIET: ("reset", ELEMENTS / 8)}
        arguments = (links.port, orders, QUIET + 4, 30, "scatter_gather")
        reports = run(ordered, *arguments, configs=links.configs)
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
    with proxy.Links(2) as links:
        orders = {1: ("reset", 0), QUIET: ("rate", SLOW)}
        reports = run(ordered, links.port, orders, QUIET + 1, 30, configs=links.configs)
        assert links.resets > 0
    for report in reports:
        assert len(report.right) == QUIET + 1, report
        assert not report.endings
        assert report.seconds[-1] > 1, "the link was not slow"


@cases("timeout", 4.0, None)
def test_a_link_that_stands_still_is_an_error(timeout: float | None) -> None:
    with proxy.Links(2) as links:
        orders = {QUIET: ("rate", 1)}
        reports = run(ordered, links.port, orders, QUIET + 2, timeout, configs=links.configs)
    assert_all_fail(reports, STILL, (timeout or NOTICED) + 6)


@matrix
def test_a_worker_stopped_for_longer_than_the_timeout_fails_like_the_others() -> None:
    victim, timeout, short, long = 0, 6.0, 2.0, 9.0  # it also coordinates the others
    reports = run(stop, victim, timeout, {1: short, QUIET: long})
    assert_all_fail(reports, STILL, timeout + 6)
    del reports[victim]
    for report in reports:
        assert short - 1 < report.seconds[1] < timeout


def test_only_a_collective_that_takes_too_long_meets_its_deadline() -> None:
    (outcome,) = cluster.run(deadlines, workers=1, devices=2, may_fail=True)
    in_time, cancelled, later, late, after = outcome.value
    assert in_time.error == ""
    assert cancelled.error == "InvalidArgumentError"
    assert later.error == ""
    assert late.error == "DeadlineExceededError"
    assert "a collective took longer than 4 seconds" in late.message
    assert late.seconds > 3.9
    assert after.error == "DeadlineExceededError"  # as after any error of a collective
