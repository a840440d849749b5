"""What workers do while links or other workers fail."""

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
import tensorflow as tf

import tf_gc
from tests.multiworker import proxy
from tests.multiworker.failure_scenarios import Ending, worker_index
from tf_gc import ops

ELEMENTS = 400_000  # 106 KB of codes and scales from each replica
QUIET = 3  # steps before the fault


@dataclasses.dataclass
class Report:
    """What a worker saw.

    Attributes:
      right: for each step that gave a sum, whether it has the bits of a run without faults.
      seconds: what each of them took.
      endings: of the step that failed, and of the one tried after it.
    """

    right: list[bool] = dataclasses.field(default_factory=list)
    seconds: list[float] = dataclasses.field(default_factory=list)
    endings: list[Ending] = dataclasses.field(default_factory=list)


def _summing(params: Any, timeout_seconds: float | None) -> Callable[[int], np.ndarray]:
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


def _steps(
    params: Any,
    timeout_seconds: float | None,
    faults: dict[int, Callable[[], None]],
    steps: int,
) -> Report:
    """Sums gradients, once without faults and once with them.

    Args:
      params: compression_params.
      timeout_seconds: of the collectives.
      faults: what this worker does before a step.
      steps: how many to make; the one that fails and another one are the last.
    """
    quiet = _summing(params, timeout_seconds)
    expected = [quiet(step) for step in range(steps)]
    total = _summing(params, timeout_seconds)
    report = Report()
    for step in range(steps):
        if step in faults:
            time.sleep(1)  # until all workers are here
            faults[step]()
        start = time.monotonic()
        try:
            value = total(step)
        except tf.errors.OpError as error:
            seconds = time.monotonic() - start
            report.endings.append(Ending(type(error).__name__, str(error), seconds))
            if len(report.endings) == 2:
                break
        else:
            report.right.append(value.tobytes() == expected[step].tobytes())
            report.seconds.append(time.monotonic() - start)
    return report


def reset_in_a_step(port: int, params: Any) -> Report:
    """All connections are reset in the middle of what they move in a step."""

    def reset() -> None:
        if worker_index() == 0:
            proxy.order(port, "reset", ELEMENTS / 8)

    return _steps(params, 30, {QUIET: reset}, QUIET + 4)


def idle_reset_then_slow(port: int, params: Any, rate: float) -> Report:
    """Connections are reset between two steps; from another step on the link is slow."""

    def ordering(what: str) -> Callable[[], None]:
        def fault() -> None:
            if worker_index() == 0:
                proxy.order(port, what, rate if what == "rate" else 0)
            time.sleep(1)

        return fault

    faults = {1: ordering("reset"), QUIET: ordering("rate")}
    return _steps(params, 30, faults, QUIET + 1)


def stall(port: int, params: Any, timeout_seconds: float | None) -> Report:
    """From one step on the link moves next to nothing, and stays open."""

    def fault() -> None:
        if worker_index() == 0:
            proxy.order(port, "rate", 1)
        time.sleep(1)

    return _steps(params, timeout_seconds, {QUIET: fault}, QUIET + 2)


def stop(victim: int, params: Any, timeout_seconds: float, stops: dict[int, float]) -> Report:
    """Before some steps a worker is stopped for so many seconds, by SIGSTOP; all others wait.

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
    report = _steps(params, timeout_seconds, faults, max(stops) + 2)
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
        within = tf.function(lambda: ops.within(seconds, tf.zeros(1), [], collective))
        start = time.monotonic()
        try:
            within()
            error, message = "", ""
        except tf.errors.OpError as caught:
            error, message = type(caught).__name__, str(caught)
        return Ending(error, message, time.monotonic() - start)

    endings = [step(lambda: gather(1)), step(fail)]
    time.sleep(seconds + 1)  # their deadlines are over
    return [*endings, *(step(functools.partial(gather, members)) for members in (1, 2, 1))]
