"""The wires over real worker processes: one result, fewer bytes, one choice of all workers."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.multiworker import cluster
from tests.strategies.helpers import normal, reducer, variables_of
from tf_gc.reducers.wire import COMPACT_BELOW, WIRES

pytestmark = pytest.mark.multiworker

Strategy = tf_gc.CompressedMultiWorkerMirroredStrategy
Results = list[dict[str, Any]]


def loop(**params: Any) -> dict[str, Any]:
    """Sums gradients, some not finite, in a loop whose messages differ in length."""
    strategy = Strategy(compression_params={**params, "warm_up": False, "bypass_size": 0})
    (variable,) = variables_of(strategy, (120_000,))

    @tf.function
    def steps() -> tf.Tensor:
        sums = tf.TensorArray(tf.float32, 4)
        for i in tf.range(4):

            def replica(i: tf.Tensor = i) -> tf.Tensor:
                number = tf.distribute.get_replica_context().replica_id_in_sync_group
                values = tf.random.stateless_normal([120_000], [i, number]) ** 3
                values *= tf.cast(tf.range(120_000) < 40_000 * (i + 1), tf.float32)
                values += tf.where((tf.range(120_000) == 77) & (i == 1), np.nan, 0.0)
                return tf_gc.all_reduce_gradients([(values, variable)])[0]

            total = strategy.run(replica)
            sums = sums.write(i, strategy.experimental_local_results(total)[0])
        return sums.stack()

    sums = steps().numpy()
    (residual,) = strategy.compression_state.variables
    return {"sums": sums, "residual": residual.numpy(), "traffic": strategy.traffic}


def traced_anew(wire: str) -> list[np.ndarray]:
    """Makes steps, one of which has a smaller batch on the second worker alone."""
    strategy = Strategy(compression_params={"type": "2bit", "threshold": 0.5, "wire": wire})
    (variable,) = variables_of(strategy, (60_000,))

    @tf.function(autograph=False)
    def step(batch: tf.Tensor) -> tf.Tensor:
        def replica() -> tf.Tensor:
            gradient = tf.random.stateless_normal([60_000], [1, 2]) * tf.reduce_sum(batch)
            return tf_gc.all_reduce_gradients([(gradient, variable)])[0]

        return strategy.experimental_local_results(strategy.run(replica))[0]

    second = cluster.worker_index() == 1
    return [step(tf.ones([3 if second and i == 2 else 4])).numpy() for i in range(4)]


def chosen_wire(params: Any = None) -> tuple[float | None, str]:
    """Returns the rate that was measured, if it was, and the wire."""
    strategy = Strategy(compression_params=params)
    run = reducer(strategy, variables_of(strategy, (9000,)))
    run(normal([(9000,)], 1, strategy.num_replicas_in_sync))
    return strategy.extended._network._rate, strategy.schedule.buckets[0].reducer.wire


LOOPS = {
    "hierarchical": {"type": "quantized"},
    "scatter_gather": {"type": "2bit", "threshold": 4.0, "plan": "scatter_gather"},
}
CHOICES = [{"type": "2bit", "wire": "packed"}, {"type": "2bit", "wire": "compact"}]
CHOICES += [{"type": "1bit"}, {"type": "quantized"}]


def all_scenarios() -> dict[str, Any]:
    return {
        "loops": {
            plan: [loop(**params, wire=wire) for wire in WIRES] for plan, params in LOOPS.items()
        },
        "traced anew": [traced_anew(wire) for wire in WIRES],
        "chosen": [chosen_wire(params) for params in CHOICES],
    }


@pytest.fixture(scope="module")
def results() -> Results:
    return cluster.values(all_scenarios, devices=2, configs=cluster.tf_configs(2, hosts=2))


@pytest.mark.parametrize("plan", LOOPS)
def test_sums_and_residuals_have_the_same_bits_on_each_wire(results: Results, plan: str) -> None:
    (packed, compact), others = (result["loops"][plan] for result in results)
    for other in (compact, *others):
        np.testing.assert_array_equal(packed["sums"], other["sums"])
        np.testing.assert_array_equal(packed["residual"], other["residual"])
    assert np.isnan(compact["sums"][1][77])
    before, after = packed["traffic"], compact["traffic"]
    assert (before.wire, after.wire) == ("packed", "compact")
    assert after.plan == plan
    assert after.sent_bytes < before.sent_bytes
    assert not after.at_most
    assert after == dataclasses.replace(before, sent_bytes=after.sent_bytes, wire="compact")
    assert after == others[1]["traffic"]


def test_a_worker_that_traces_its_step_anew_sends_as_much_as_the_others(results: Results) -> None:
    (packed, compact), others = (result["traced anew"] for result in results)
    for other in (compact, *others):
        np.testing.assert_array_equal(packed, other)


def test_all_workers_choose_one_wire_by_the_slowest_rate(results: Results) -> None:
    first, second = (result["chosen"] for result in results)
    assert first == second
    *unmeasured, (rate, wire) = first
    assert unmeasured == [(None, "packed"), (None, "compact"), (None, "packed")]
    assert wire == ("compact" if rate < COMPACT_BELOW else "packed")


def test_workers_of_one_machine_measure_no_link_and_say_so() -> None:
    chief, worker = cluster.run(chosen_wire)
    assert chief.value == worker.value == (math.inf, "packed")
    assert chief.log.count("packed wire: all workers are on one machine") == 1
    assert "wire:" not in worker.log
