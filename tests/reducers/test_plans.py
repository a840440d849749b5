"""Every plan: one result on all replicas, and nothing lost."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.strategies.helpers import (
    check_that_nothing_is_lost,
    cpus,
    normal,
    reducer,
    strategy_of,
    summing,
    variables_of,
)
from tf_gc.network.group import LocalNetwork, Replica
from tf_gc.params import CompressionParams
from tf_gc.reducers import hierarchical
from tf_gc.state.stored import widened

GOLDEN = Path(__file__).parents[1] / "golden" / "mxnet_1_9_1_two_bit.npz"
CPUS, GPUS = ("CPU:0", "CPU:1"), ("GPU:0", "GPU:1")
SHAPES = [(7, 100), (1,), (129,), (3000,)]
AT_ONCE: dict[str, Any] = {"warm_up": False, "bypass_size": 0}

# tests/ops/test_shards.py has each codec and each codec of sums.
CODECS = cases(
    "params",
    tf_gc.Quantized(plan="scatter_gather", sum_bits=4, **AT_ONCE),
    tf_gc.OneBit(plan="scatter_gather", sum_bits=3, **AT_ONCE),
    tf_gc.TwoBit(plan="scatter_gather", sum_bits=2, **AT_ONCE),
    tf_gc.Quantized(plan="all_gather", **AT_ONCE),
    tf_gc.TwoBit(0.01),
    tf_gc.OneBit(**AT_ONCE),
    tf_gc.Quantized(plan="scatter_gather", residual="bfloat16", **AT_ONCE),
    tf_gc.TwoBit(plan="scatter_gather", residual="int8", **AT_ONCE),
    ids=str,
)


@pytest.mark.parametrize(
    ("params", "hosts", "devices", "plan"),
    [
        (tf_gc.TwoBit(), 2, GPUS[:1], "all_gather"),
        (tf_gc.TwoBit(), 3, GPUS[:1], "scatter_gather"),  # (2.125 + 3.125) * 2 / 3 and 2 * 2.125
        (tf_gc.TwoBit(0.5), 3, GPUS[:1], "all_gather"),  # (2 + 4) * 2 / 3 are no fewer than 2 * 2
        (tf_gc.TwoBit(0.5), 4, GPUS[:1], "scatter_gather"),
        (tf_gc.TwoBit(), 2, GPUS, "hierarchical"),
        (tf_gc.OneBit(), 3, GPUS[:1], "all_gather"),  # (1.125 + 3.125) * 2 / 3 and 2 * 1.125
        (tf_gc.OneBit(), 4, GPUS[:1], "scatter_gather"),
        (tf_gc.OneBit(0.5), 4, GPUS[:1], "all_gather"),  # (1.125 + 4) * 3 / 4 and 3 * 1.125
        (tf_gc.OneBit(0.5), 5, GPUS[:1], "scatter_gather"),
        (tf_gc.Quantized(), 2, GPUS[:1], "all_gather"),
        (tf_gc.Quantized(), 3, GPUS[:1], "scatter_gather"),
        (tf_gc.TwoBit(), 1, CPUS * 4, "all_gather"),  # nothing is sent in shared memory
        (tf_gc.TwoBit(), 1, GPUS * 4, "scatter_gather"),
        (tf_gc.TwoBit(plan="all_gather"), 2, GPUS, "all_gather"),
        (tf_gc.TwoBit(plan="scatter_gather"), 2, GPUS, "scatter_gather"),
    ],
    ids=str,
)
def test_the_plan_that_sends_least_is_chosen_unless_one_is_asked_for(
    params: CompressionParams, hosts: int, devices: Sequence[str], plan: str
) -> None:
    network = LocalNetwork(devices)
    network.hosts = hosts
    assert params.specs()[0].plan_on(network).plan == plan


@pytest.mark.parametrize("plan", ["all_gather", "scatter_gather"])
@cases(
    "case, eager",
    ("normal_100x100", False),
    *(("ramp_4x4", True), ("normal_37", False), ("uniform_2x3", True)),
)
def test_sums_are_those_of_mxnet(case: str, eager: bool, plan: str) -> None:
    with np.load(GOLDEN) as golden:
        gradients, expected = golden[f"{case}__grads"], golden[f"{case}__sums"]
        threshold = float(golden[f"{case}__threshold"])
    params = {"type": "2bit", "threshold": threshold, "plan": plan}
    replicas, shape = gradients.shape[1], gradients.shape[2:]
    _, run = summing(params, shape, replicas=replicas, eager=eager)
    for step, sums in zip(gradients, expected, strict=True):
        for (total,) in run([step]):
            np.testing.assert_array_equal(total, sums)


@cases("params", tf_gc.TwoBit(0.07), tf_gc.OneBit(0.07), ids=str)
@cases("replicas", 3, 1, 2, 8)
def test_with_a_fixed_threshold_the_plans_agree_to_the_bit(
    replicas: int, params: CompressionParams
) -> None:
    pairs = [
        summing(dataclasses.replace(params, plan=plan), *SHAPES, replicas=replicas)
        for plan in ("all_gather", "scatter_gather")
    ]
    strategies, runs = zip(*pairs, strict=True)
    for seed in range(5):
        gradients = normal(SHAPES, seed, replicas, scale=0.1)
        if seed == 3:
            gradients[3][-1, 5] = np.nan
        np.testing.assert_equal(*(run(gradients) for run in runs))
    states = [strategy.compression_state.variables for strategy in strategies]
    for a, b in zip(*states, strict=True):
        for mine, theirs in zip(a.values, b.values, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@CODECS
@cases("replicas, bucket_bytes", (3, 600), (2, 0), (5, 0))
def test_sent_plus_residuals_is_the_sum_of_the_gradients(
    replicas: int, bucket_bytes: int, params: CompressionParams
) -> None:
    strategy = strategy_of(params, replicas)
    variables = variables_of(strategy, *SHAPES)
    run = reducer(strategy, variables, bucket_bytes=bucket_bytes)
    steps = (normal(SHAPES, seed, replicas, scale=0.1) for seed in range(20))
    # Each rounding of a residual to fewer bits stays in the sum.
    atol = {"float32": 3e-5, "bfloat16": 1e-2, "int8": 3e-2}[vars(params)["residual"]]
    check_that_nothing_is_lost(strategy, variables, run, steps, rtol=1e-5, atol=atol)
    assert len(strategy.compression_state) == len(SHAPES)  # one serves both stages


@CODECS
@cases("bad, replica", (np.inf, 1), (np.nan, 0), (3e38, 2))
def test_a_bad_number_shows_on_all_replicas_whoever_owns_the_shard(
    bad: float, replica: int, params: Any
) -> None:
    strategy, run = summing(params, (900,), replicas=3)
    (clean,) = normal([(900,)], 1, 3)
    for owner, element in enumerate((50, 450, 800)):  # of shards of 3 blocks: one in each
        run([clean])
        (residual,) = strategy.compression_state.variables
        before = widened(residual.values[replica], (900,)).numpy()
        gradients = clean.copy()
        gradients[replica, element] = bad
        marked = slice(element, element + 1)
        # Messages of one bit mark blocks. A shard's owner adds its own part without a message.
        alone = params.plan == "scatter_gather" and owner == replica
        if isinstance(params, tf_gc.OneBit) and not alone:
            marked = slice(element // 128 * 128, (element // 128 + 1) * 128)
        for (total,) in run([gradients]):
            assert np.isnan(total[marked]).all()
            assert np.isfinite(np.delete(total, marked)).all()
        kept = widened(residual.values[replica], (900,)).numpy()
        assert np.abs(kept[marked] - before[marked]).max() <= 0.01 * (params.residual == "int8")
        for (total,) in run([clean]):
            assert np.isfinite(total).all()


def test_a_leader_takes_over_what_others_of_its_host_have_not_sent() -> None:
    replicas = []
    for number, device in enumerate(cpus(3)):
        with tf.device(device):
            residual = tf.Variable(tf.fill([5], 10.0**number))
            replicas.append(Replica(device, [tf.fill([5], number + 1.0)], [residual]))
    leader = hierarchical._sum_on_host(replicas, leader=1)
    np.testing.assert_array_equal(leader.gradients[0], np.full(5, 6.0))
    for replica, left in zip(replicas, (0.0, 111.0, 0.0), strict=True):
        np.testing.assert_array_equal(replica.residuals[0], np.full(5, left))
