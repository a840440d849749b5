"""Every plan: one result on all replicas, and nothing lost."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.strategies.helpers import cpus, reducer, variables_of
from tf_gc.network.group import LocalNetwork, Replica
from tf_gc.params import CompressionParams
from tf_gc.reducers import hierarchical

GOLDEN = Path(__file__).parents[1] / "golden" / "mxnet_1_9_1_two_bit.npz"
CPUS, GPUS = ("CPU:0", "CPU:1"), ("GPU:0", "GPU:1")
SHAPES = [(7, 100), (1,), (129,), (3000,)]


# tests/ops/test_shards.py has each codec and each codec of sums.
each_sum = cases("kind, sum_bits", (tf_gc.Quantized, 4), (tf_gc.OneBit, 3), (tf_gc.TwoBit, 2))


def gradients_of(replicas: int, seed: int, scale: float = 0.1) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [
        random.normal(scale=scale, size=(replicas, *shape)).astype(np.float32) for shape in SHAPES
    ]


def chosen(params: CompressionParams, hosts: int, devices: Sequence[str]) -> str:
    network = LocalNetwork(devices)
    network.hosts = hosts
    spec, *_ = params.specs()
    return spec.plan_on(network).plan


@pytest.mark.parametrize(
    ("params", "hosts", "devices", "plan"),
    [
        (tf_gc.TwoBit(), 2, 1, "all_gather"),
        (tf_gc.TwoBit(), 3, 1, "scatter_gather"),  # (2.125 + 3.125) * 2 / 3 and 2 * 2.125
        (tf_gc.TwoBit(), 4, 1, "scatter_gather"),
        (tf_gc.TwoBit(0.5), 3, 1, "all_gather"),  # (2 + 4 bits) * 2 / 3 are no fewer than 2 * 2
        (tf_gc.TwoBit(0.5), 4, 1, "scatter_gather"),
        (tf_gc.TwoBit(), 2, 2, "hierarchical"),
        (tf_gc.TwoBit(0.5), 2, 2, "hierarchical"),
        (tf_gc.OneBit(), 2, 1, "all_gather"),
        (tf_gc.OneBit(), 3, 1, "all_gather"),  # (1.125 + 3.125) * 2 / 3 are more than 2 * 1.125
        (tf_gc.OneBit(), 4, 1, "scatter_gather"),
        (tf_gc.OneBit(0.5), 4, 1, "all_gather"),  # (1.125 + 4 bits) * 3 / 4 and 3 * 1.125
        (tf_gc.OneBit(0.5), 5, 1, "scatter_gather"),
        (tf_gc.OneBit(), 2, 2, "hierarchical"),
        (tf_gc.Quantized(), 2, 1, "all_gather"),
        (tf_gc.Quantized(), 3, 1, "scatter_gather"),
        (tf_gc.Quantized(), 2, 2, "hierarchical"),
    ],
    ids=str,
)
def test_the_plan_that_sends_least_is_chosen(
    params: CompressionParams, hosts: int, devices: int, plan: str
) -> None:
    assert chosen(params, hosts, GPUS[:devices]) == plan


def test_within_one_memory_nothing_is_scattered() -> None:
    assert chosen(tf_gc.TwoBit(), 1, CPUS * 4) == "all_gather"
    assert chosen(tf_gc.TwoBit(), 1, GPUS * 4) == "scatter_gather"


@pytest.mark.parametrize("plan", ["all_gather", "scatter_gather"])
def test_a_plan_can_be_forced(plan: str) -> None:
    assert chosen(tf_gc.TwoBit(plan=plan), 2, GPUS) == plan


def test_a_hierarchy_of_one_host_is_refused() -> None:
    with pytest.raises(ValueError, match="all replicas are on one"):
        tf_gc.CompressedMirroredStrategy(cpus(2), tf_gc.TwoBit(plan="hierarchical"))


@pytest.mark.parametrize("plan", ["ring", None, 1])
def test_an_unknown_plan_is_refused(plan: object) -> None:
    with pytest.raises(ValueError, match=r"plan must be one of .*'scatter_gather'"):
        tf_gc.TwoBit(plan=plan)  # type: ignore[arg-type]


@cases(
    "case, eager",
    ("normal_100x100", False),
    *(("ramp_4x4", True), ("normal_37", False), ("uniform_2x3", True)),
)
def test_scattered_sums_are_those_of_mxnet(case: str, eager: bool) -> None:
    with np.load(GOLDEN) as golden:
        gradients, expected = golden[f"{case}__grads"], golden[f"{case}__sums"]
        threshold = float(golden[f"{case}__threshold"])
    strategy = tf_gc.CompressedMirroredStrategy(
        cpus(gradients.shape[1]),
        {"type": "2bit", "threshold": threshold, "warm_up": False, "plan": "scatter_gather"},
    )
    run = reducer(strategy, variables_of(strategy, gradients.shape[2:]), eager)
    for step, sums in zip(gradients, expected, strict=True):
        for (total,) in run([step]):
            np.testing.assert_array_equal(total, sums)


@cases("params", tf_gc.TwoBit(0.07), tf_gc.OneBit(0.07), ids=str)
@cases("replicas", 3, 1, 2, 8)
def test_with_a_fixed_threshold_the_plans_agree_to_the_bit(
    replicas: int, params: CompressionParams
) -> None:
    runs = []
    for plan in ("all_gather", "scatter_gather"):
        strategy = tf_gc.CompressedMirroredStrategy(
            cpus(replicas), dataclasses.replace(params, plan=plan)
        )
        runs.append((strategy, reducer(strategy, variables_of(strategy, *SHAPES))))
    for seed in range(5):
        gradients = gradients_of(replicas, seed)
        if seed == 3:
            gradients[3][-1, 5] = np.nan
        results = [run(gradients) for _, run in runs]
        for mine, theirs in zip(*results, strict=True):
            for a, b in zip(mine, theirs, strict=True):
                np.testing.assert_array_equal(a, b)
    states = [strategy.compression_state.variables for strategy, _ in runs]
    for a, b in zip(*states, strict=True):
        for mine, theirs in zip(a.values, b.values, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@each_sum
@cases("replicas, bucket_bytes", (3, 600), (2, 0), (5, 0))
def test_scattered_and_reencoded_sums_lose_nothing(
    replicas: int, bucket_bytes: int, kind: type, sum_bits: int
) -> None:
    params = kind(warm_up=False, bypass_size=0, plan="scatter_gather", sum_bits=sum_bits)
    strategy = tf_gc.CompressedMirroredStrategy(cpus(replicas), params)
    run = reducer(strategy, variables_of(strategy, *SHAPES), bucket_bytes=bucket_bytes)
    given = [np.zeros(shape) for shape in SHAPES]
    sent = [np.zeros(shape) for shape in SHAPES]
    for seed in range(20):
        gradients = gradients_of(replicas, seed)
        sums = run(gradients)
        for i in range(len(SHAPES)):
            for other in sums[1:]:
                np.testing.assert_array_equal(other[i], sums[0][i])
            given[i] += gradients[i].sum(axis=0, dtype=np.float64)
            sent[i] += sums[0][i]
    residuals = {r.shape: r.numpy() for r in strategy.compression_state.variables}
    assert len(residuals) == len(SHAPES)  # one serves both stages
    for shape, total, applied in zip(SHAPES, given, sent, strict=True):
        np.testing.assert_allclose(applied + residuals[shape], total, rtol=1e-5, atol=3e-5)


@each_sum
@cases("bad, replica", (np.inf, 1), (np.nan, 0), (3e38, 2))
def test_a_bad_number_shows_on_all_replicas_whoever_owns_the_shard(
    bad: float, replica: int, kind: type, sum_bits: int
) -> None:
    params = kind(warm_up=False, bypass_size=0, plan="scatter_gather", sum_bits=sum_bits)
    strategy = tf_gc.CompressedMirroredStrategy(cpus(3), params)
    run = reducer(strategy, variables_of(strategy, (900,)))
    gradients = np.random.default_rng(1).normal(size=(3, 900)).astype(np.float32)
    clean = gradients.copy()
    for owner, element in enumerate((50, 450, 800)):  # of shards of 3 blocks: one in each
        run([clean])
        (residual,) = strategy.compression_state.variables
        before = [component.numpy() for component in residual.values]
        gradients = clean.copy()
        gradients[replica, element] = bad
        marked = slice(element, element + 1)
        if kind is tf_gc.OneBit and (sum_bits == 1 or owner != replica):  # which marks blocks
            marked = slice(element // 128 * 128, (element // 128 + 1) * 128)
        for (total,) in run([gradients]):
            assert np.isnan(total[marked]).all()
            assert np.isfinite(np.delete(total, marked)).all()
        np.testing.assert_array_equal(
            residual.values[replica].numpy()[marked], before[replica][marked]
        )
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
