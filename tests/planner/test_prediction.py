"""The predicted bytes and times, and how they depend on the cluster."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import tf_gc
from tests.cases import cases
from tf_gc.params import Gradient
from tf_gc.planner.gpus import COPY_RATE, OF_COPY, gpu_cost
from tf_gc.planner.measure import Costs, gradients_of, measure_compute
from tf_gc.planner.prediction import STOCK, Cost, Gradients, Prediction, SimulatedNetwork, predict
from tf_gc.planner.time_model import Compute, Link, step_seconds
from tf_gc.planner.workload import Workload, make_workload
from tf_gc.schedule import Schedule, make_schedule

COMPUTE = Compute(0.1, 0.2, 0.05)
WORK = 0.01
THREE_BITS = tf_gc.Quantized(3)

sizes = st.lists(st.integers(1, 5_000_000), min_size=1, max_size=20)


def dense(elements: list[int]) -> Gradients:
    known = [Gradient(f"v{i}", tf.float32, (size,)) for i, size in enumerate(elements)]
    return Gradients(tuple(known))


def cost_of(schedule: Schedule, network: SimulatedNetwork) -> Cost:
    """Of gathers of three bits an element."""
    others = network.hosts - 1
    sent = [(others * bucket.elements * 3 // 8, others, 1) for bucket in schedule.buckets]
    return Cost(WORK if sent else 0.0, tuple(sent))


def predicted(gradients: list[int] | Gradients, params: Any, link: Link) -> Prediction:
    if isinstance(gradients, list):
        gradients = dense(gradients)
    return predict(params, gradients, COMPUTE, cost_of, link)


@given(sizes, st.integers(2, 1024), st.floats(1e6, 1e12), st.floats(1, 1e3))
def test_faster_links_never_make_a_step_slower(
    elements: list[int], workers: int, rate: float, factor: float
) -> None:
    for params in (STOCK, THREE_BITS):
        slow = predicted(elements, params, Link(workers, rate))
        fast = predicted(elements, params, Link(workers, rate * factor))
        assert COMPUTE.total <= fast.seconds <= slow.seconds
        assert fast.sent_bytes == slow.sent_bytes


def test_collectives_are_those_of_the_alpha_beta_model() -> None:
    payload = 1538 / 1448  # so that the link carries 1 GB of payload a second
    link = Link(4, 8e9 * payload, launch=0, latency=1, byte=0)
    # 2 alpha (p - 1) + 2 b (p - 1) / (p BW), and alpha (p - 1) + m (p - 1) / BW.
    assert link.all_reduce(4e9) == pytest.approx(6 + 6)
    assert link.all_gather(4e9) == pytest.approx(3 + 12)
    assert Link(4, 8e9 * payload, 0, 0, byte=1e-9).all_gather(1e9) == pytest.approx(2 * 3)
    assert Link(4, 1e9, 5, 0, 0).seconds(0, rounds=3, collectives=2) == 10
    tree = dataclasses.replace(link, level=0.5)  # up and down two of them
    assert tree.all_reduce(4e9) == pytest.approx(2 * 4 / 0.9 + 2 * 2 * 0.5)
    assert Link(1, 8e9, 0, 1, 0, gpus=4).all_reduce(4e9) == pytest.approx(6 + 6)
    two = Link(2, 8e9 * payload, 0, 0, 0, gpus=2, host_byte=2e-9)
    assert two.all_gather(1e9) == pytest.approx(3 * 2)  # a ring is as slow as its slowest part
    assert two.seconds(0, 0, in_host=1e9) == pytest.approx(2)


@given(st.floats(0.1, 1), st.integers(2, 50), st.floats(0, 1), st.floats(1, 2))
def test_equal_buckets_take_what_the_paper_says(
    backward: float, buckets: int, network: float, slowdown: float
) -> None:
    expected = max(slowdown * backward, (buckets - 1) * network) + network
    early = (buckets - 1) * network
    step = step_seconds(Compute(0, backward, 0), early, network, slowdown=slowdown)
    assert step == pytest.approx(expected if network else backward)


def test_plan_and_wire_are_those_that_a_strategy_chooses() -> None:
    fast, slow = (
        predicted([10_000_000], THREE_BITS, link).plans for link in (Link(2, 1e10), Link(64, 1e8))
    )
    assert fast == ("all_gather, packed",)
    assert slow[0].startswith("scatter_gather, ")
    assert not slow[0].endswith("packed")


def test_a_bucket_is_sent_while_the_gradients_before_it_are_computed() -> None:
    link = Link(2, 1e8, launch=0, latency=0)
    elements = [2_000_000, 30_000_000]  # each a bucket
    late, early = (link.all_gather(size * 3 // 8) for size in elements)
    assert early > 1.07 * COMPUTE.backward + WORK
    found = predicted(elements, THREE_BITS, link)
    assert found.seconds == pytest.approx(COMPUTE.forward + early + late + COMPUTE.update)


def test_full_precision_is_one_all_reduce_of_what_is_not_compressed() -> None:
    link = Link(4, 1e9)
    stock, ours = (predicted([100, 2000], params, link) for params in (STOCK, THREE_BITS))
    assert ours == stock
    assert stock.sent_bytes == 2 * 3 * 4 * 2100 // 4
    assert stock.seconds == pytest.approx(COMPUTE.total + link.all_reduce(4 * 2100))


def test_sparse_gradients_are_gathered_or_sent_as_rows() -> None:
    table = Gradient("table", tf.float32, (10_000, 64), sparse=True)
    one = Gradients((table,), sparse_bytes={0: 1000})
    link = Link(4, 1e9, launch=1, latency=10, byte=0)
    for params in (STOCK, tf_gc.Quantized(sparse=False)):
        found = predicted(one, params, link)
        assert found.sent_bytes == 3 * 1000
        assert found.seconds == pytest.approx(COMPUTE.total + 3 * 1 + 9 * 10, abs=1e-3)
    found = predicted(one, THREE_BITS, link)
    assert (found.sent_bytes, found.plans) == (3 * 240_000, ("all_gather, rows",))
    seconds = link.seconds(found.sent_bytes, 3)
    assert found.seconds == pytest.approx(COMPUTE.total + WORK + seconds)


def workload_of(*layers: keras.layers.Layer, inputs: keras.KerasTensor) -> Workload:
    keras.utils.set_random_seed(1)
    return make_workload(lambda: keras.Sequential([inputs, *layers]), batch_size=4)


@cases(
    "params",
    tf_gc.Quantized(4, plan="scatter_gather", warm_up=False),
    tf_gc.Quantized(1, plan="all_gather", warm_up=False),
    tf_gc.LowRank(1, warm_up=False),
    ids=lambda params: f"{type(params).__name__} {params.plan} {getattr(params, 'bits', '')}",
)
def test_bytes_are_those_that_a_strategy_counts(params: tf_gc.Quantized | tf_gc.LowRank) -> None:
    devices = [f"CPU:{i}" for i in range(4)]
    strategy = tf_gc.CompressedMirroredStrategy(devices, params)
    widths = (128, 256, 384, 1)
    with strategy.scope():
        layers = map(keras.layers.Dense, widths)
        model = keras.Sequential([keras.Input((64,)), *layers])
        model.compile("sgd", "mse")
    model.fit(tf.zeros([8, 64]), tf.zeros([8, 1]), batch_size=8, verbose=0)

    workload = workload_of(*map(keras.layers.Dense, widths), inputs=keras.Input((64,)))
    values, gradients = gradients_of(workload)
    costs = Costs(workload, values, repeats=1)
    ours, stock = (predict(p, gradients, COMPUTE, costs, Link(4, 1e10)) for p in (params, STOCK))
    assert ours.sent_bytes == strategy.traffic.sent_bytes
    assert stock.sent_bytes == pytest.approx(strategy.traffic.stock_bytes, abs=8)


def scheduled(params: Any, gradients: Gradients, link: Link) -> tuple[Schedule, SimulatedNetwork]:
    network = SimulatedNetwork(link, gradients.device)
    senders = {spec: spec.on(network) for spec in params.specs()}
    return make_schedule(params, gradients.known, senders), network


@pytest.mark.parametrize("plan", ["all_gather", "scatter_gather"])
@pytest.mark.parametrize("params", [tf_gc.OneBit, tf_gc.Cast])
def test_gpus_send_what_the_plans_send(params: Any, plan: str) -> None:
    workload = workload_of(keras.layers.Dense(4096), inputs=keras.Input((512,)))
    values, gradients = gradients_of(workload)
    on = scheduled(params(plan=plan), gradients, Link(4, 1e10))
    counted, ours = Costs(workload, values, repeats=1)(*on), gpu_cost(1, *on)
    for sent, known in zip(counted.sent, ours.sent, strict=True):
        assert known == (pytest.approx(sent[0], rel=1e-3, abs=100), *sent[1:], 0)


def test_gpus_of_a_host_share_its_work_and_its_link() -> None:
    gradients = dataclasses.replace(dense([8 << 20]), device="GPU:0")

    def cost(hosts: int, gpus: int, plan: str = "auto") -> Cost:
        params = tf_gc.Quantized(3, plan=plan)
        return gpu_cost(1, *scheduled(params, gradients, Link(hosts, 1e10, gpus=gpus)))

    alone, four = cost(4, 1), cost(4, 4)
    assert four.sent == ((*alone.sent[0][:3], 2 * 4 * (8 << 20) * 3 // 4),)
    assert four.seconds == pytest.approx(alone.seconds / 4)
    # Each sends 12 of 16 shards to other hosts; then its sum, in 4 bits, goes round.
    sent = (4 * 12 * 3.125 + 15 * 4.125) / 16 * (1 << 20)
    assert cost(4, 4, "scatter_gather").sent == ((sent, 16, 2, 0),)
    assert cost(1, 4, "scatter_gather").sent[0][0] == 3 * (3.125 + 4.125) / 4 * (1 << 20)


def test_gpus_are_as_fast_as_recorded() -> None:
    recorded = json.loads((Path(__file__).parents[2] / "benchmarks/results/gpu.json").read_text())
    assert pytest.approx(8e9 * recorded["copy_gb_per_s"]) == COPY_RATE
    for bits, codec in enumerate(("one_bit_auto", "two_bit_auto", "three_bit", "four_bit"), 1):
        calls = [call["of_copy"] for call in recorded["calls"] if call["codec"] == codec]
        assert OF_COPY[bits] == tuple(calls)


def test_what_is_measured_of_a_model() -> None:
    embedding = keras.layers.Embedding(5000, 64)
    layers = [embedding, keras.layers.Flatten(), keras.layers.Dense(64)]
    workload = workload_of(*layers, inputs=keras.Input((6,), dtype="int32"))
    compute = measure_compute(workload, repeats=2)
    assert min(compute.forward, compute.backward, compute.update) >= 0
    assert compute.total > 0
    values, gradients = gradients_of(workload)
    # 4 samples of 6 words: rows of 64 float32, and their numbers, which are int32.
    assert gradients.sparse_bytes == {0: 24 * (64 * 4 + 4)}
    elements = [known and known.elements for known in gradients.known]
    assert elements == [320_000, 24_576, 64]
    costs = Costs(workload, values, repeats=1)
    found: list[Cost] = []

    def noted(schedule: Schedule, network: SimulatedNetwork) -> Cost:
        found.append(costs(schedule, network))
        return found[-1]

    for workers, rate, dense in (
        (2, 1e10, (1, 1)),
        (2, 1e8, (1, 1)),  # messages that are packed take no more collectives
        (8, 1e10, (1 + 7, 2)),  # an all-to-all, and a gather of sums
    ):
        predict(THREE_BITS, gradients, COMPUTE, noted, Link(workers, rate))
        (size, *of_dense), (rows, *of_rows) = found[-1].sent
        assert found[-1].seconds > 0
        assert tuple(of_dense) == dense
        assert tuple(of_rows) == (workers - 1, 1)
        assert 0 < size < 24_576 * 4
        assert (workers - 1) * 8 * 24 <= rows < (workers - 1) * 24 * (64 * 4 + 4)
    assert found[1].sent[0][0] < found[0].sent[0][0]
    predict(THREE_BITS, gradients, COMPUTE, noted, Link(8, 2e10))
    assert found[-1] is found[-2]  # measured once
