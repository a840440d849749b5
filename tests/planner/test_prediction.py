"""What each choice is predicted to send, and how predictions depend on the cluster."""

import dataclasses

import keras
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import tf_gc
from tests.cases import cases
from tf_gc.params import Gradient
from tf_gc.planner.measure import compute_gradients, describe, measure_codec, measure_compute
from tf_gc.planner.prediction import (
    CHOICES,
    STOCK,
    Choice,
    CodecCost,
    Gradients,
    Prediction,
    predict,
)
from tf_gc.planner.subject import Subject, make_subject
from tf_gc.planner.time_model import Compute, Link
from tf_gc.reducers.wire import WIRES

COMPUTE = Compute(0.1, 0.2, 0.05)
COST = CodecCost(encode=1e-9, unpack=1e-9, decode=1e-9, add=1e-10, bits=3.125)
THREE_BITS = Choice("3 bits", tf_gc.Quantized(3, wire="packed"))

sizes = st.lists(st.integers(1, 5_000_000), min_size=1, max_size=20)


def gradients_of(elements: list[int]) -> Gradients:
    known = [Gradient(f"v{i}", tf.float32, (size,)) for i, size in enumerate(elements)]
    return Gradients(tuple(known))


def predicted(elements: list[int], choice: Choice, link: Link, cost: CodecCost = COST):
    return predict(
        choice,
        gradients_of(elements),
        COMPUTE,
        {choice.name: dict.fromkeys(WIRES, cost)},
        link,
    )


@given(sizes, st.sampled_from([STOCK, *CHOICES]), st.floats(1e6, 1e12))
def test_one_worker_computes_and_sends_nothing(elements: list, choice: Choice, rate: float) -> None:
    alone = predicted(elements, choice, Link(1, rate))
    assert alone == Prediction(COMPUTE.total, 0)


@given(sizes, st.integers(2, 1024), st.floats(1e6, 1e12), st.floats(1, 1e3))
def test_faster_links_never_make_a_step_slower(
    elements: list[int], workers: int, rate: float, factor: float
) -> None:
    for choice in (STOCK, THREE_BITS):
        slow = predicted(elements, choice, Link(workers, rate))
        fast = predicted(elements, choice, Link(workers, rate * factor))
        assert COMPUTE.total <= fast.seconds <= slow.seconds
        assert fast.sent_bytes == slow.sent_bytes


@given(sizes, st.integers(2, 1024), st.integers(0, 19))
def test_larger_gradients_never_make_a_step_faster(
    elements: list[int], workers: int, which: int
) -> None:
    # One that is large already: a small one that grows is compressed, or travels with others.
    elements = [100_000_000, *elements[: which + 1]]
    larger = [200_000_000, *elements[1:]]
    for choice in (STOCK, THREE_BITS):
        link = Link(workers, 1e9)
        before, after = (predicted(some, choice, link) for some in (elements, larger))
        assert before.seconds <= after.seconds
        assert before.sent_bytes <= after.sent_bytes


@given(sizes, st.integers(2, 1024))
def test_more_workers_never_make_a_step_faster(elements: list[int], workers: int) -> None:
    for choice in (
        STOCK,
        Choice("gather", tf_gc.Quantized(plan="all_gather")),
        Choice("scatter", tf_gc.Quantized(plan="scatter_gather")),
    ):
        fewer, more = (predicted(elements, choice, Link(n, 1e9)) for n in (workers, workers + 1))
        # A shard of its own sum is what a worker encodes besides: fewer workers, larger shards.
        encoded_again = 2 * COST.encode * sum(elements) / workers
        assert fewer.seconds <= more.seconds + encoded_again
        assert fewer.sent_bytes <= more.sent_bytes + 1  # the stock ops' are whole bytes


@given(sizes, st.integers(2, 1024), st.floats(0.1, 1))
def test_a_wire_with_fewer_bits_sends_less(
    elements: list[int], workers: int, density: float
) -> None:
    link = Link(workers, 1e8, launch=0, latency=0)
    fewer_bits = dataclasses.replace(COST, bits=density * COST.bits)
    for wire in WIRES:
        choice = Choice("3 bits", tf_gc.Quantized(3, wire=wire))
        more, fewer = (predicted(elements, choice, link, cost) for cost in (COST, fewer_bits))
        assert fewer.sent_bytes <= more.sent_bytes
        assert fewer.seconds <= more.seconds


def test_the_wire_follows_from_the_rate_of_the_links() -> None:
    default = Choice("default", tf_gc.Quantized())
    slow, fast = (predicted([10_000_000], default, Link(2, rate)) for rate in (1e8, 1e10))
    assert (slow.wires, fast.wires) == (("compact",), ("packed",))


@pytest.mark.parametrize("plan", ["all_gather", "scatter_gather"])
def test_compact_messages_take_no_more_collectives(plan: str) -> None:
    link = Link(4, 1e9, launch=1, latency=10, byte=0)
    packed, compact = (
        predicted([10_000_000], Choice("", tf_gc.Quantized(plan=plan, wire=wire)), link).seconds
        for wire in ("packed", "compact")
    )
    assert compact == pytest.approx(packed)


def test_the_plan_is_the_one_that_sends_least() -> None:
    gather = predicted([10_000_000], THREE_BITS, Link(2, 1e9))
    scatter = predicted([10_000_000], THREE_BITS, Link(64, 1e9))
    assert (gather.plans, scatter.plans) == (("all_gather",), ("scatter_gather",))
    forced = Choice("forced", tf_gc.Quantized(3, plan="all_gather"))
    assert predicted([10_000_000], forced, Link(64, 1e9)).sent_bytes == pytest.approx(
        63 * 10_000_000 * 3.125 / 8
    )


def test_what_is_small_is_sent_in_full_precision() -> None:
    stock, ours = (predicted([100, 2000], choice, Link(4, 1e9)) for choice in (STOCK, THREE_BITS))
    assert ours == stock
    assert stock.sent_bytes == 2 * 3 * 4 * 2100 // 4


def test_sparse_gradients_are_gathered_or_sent_as_rows() -> None:
    table = Gradient("table", tf.float32, (10_000, 64), sparse=True)
    one = Gradients((table,), sparse_bytes=(1000,))
    link = Link(4, 1e9, launch=1, latency=10, byte=0)
    for choice in (STOCK, Choice("dense", tf_gc.Quantized(sparse=False))):
        sent = predict(choice, one, COMPUTE, {}, link)
        assert sent.sent_bytes == 3 * 1000
        assert sent.seconds == pytest.approx(COMPUTE.total + 3 * 1 + 9 * 10, abs=1e-3)
    rows = CodecCost(encode=0.5, unpack=0, decode=0.25, add=0.125, bits=8 * 100)
    sent = predict(THREE_BITS, one, COMPUTE, {THREE_BITS.name: {"rows": rows}}, link)
    assert (sent.sent_bytes, sent.wires) == (3 * 100, ("rows",))
    codec = 0.5 + 0.25 + 4 * 0.125
    assert sent.seconds == pytest.approx(COMPUTE.total + codec + 1 + 3 * 10, abs=1e-3)


def test_state_of_layers_is_averaged_with_compression_only() -> None:
    plain = gradients_of([10_000])
    layers = dataclasses.replace(plain, state_bytes=4000)
    costs = {THREE_BITS.name: {"packed": COST}}
    for choice, more in ((STOCK, False), (THREE_BITS, True)):
        without, with_state = (
            predict(choice, some, COMPUTE, costs, Link(2, 1e9)).seconds for some in (plain, layers)
        )
        assert (with_state > without) == more


def test_a_choice_without_costs_is_an_error() -> None:
    with pytest.raises(KeyError, match="3 bits"):
        predict(THREE_BITS, gradients_of([10_000]), COMPUTE, {}, Link(2, 1e9))


def subject_of(*layers: keras.layers.Layer, inputs: keras.KerasTensor) -> Subject:
    keras.utils.set_random_seed(1)
    return make_subject(lambda: keras.Sequential([inputs, *layers]), batch_size=4)


@cases(
    "params",
    tf_gc.Quantized(4, plan="scatter_gather", warm_up=False, wire="packed"),
    tf_gc.Quantized(1, plan="all_gather", warm_up=False, wire="packed"),
    tf_gc.LowRank(1, warm_up=False, wire="packed"),
    ids=lambda params: f"{type(params).__name__} {params.plan} {getattr(params, 'bits', '')}",
)
def test_bytes_are_those_that_a_strategy_counts(params: tf_gc.Quantized | tf_gc.LowRank) -> None:
    devices = [f"CPU:{i}" for i in range(4)]
    strategy = tf_gc.CompressedMirroredStrategy(devices, params)
    widths = [keras.layers.Dense(width) for width in (128, 256, 384, 1)]
    with strategy.scope():
        model = keras.Sequential([keras.Input((64,)), *widths])
        model.compile("sgd", "mse")
    model.fit(tf.zeros([8, 64]), tf.zeros([8, 1]), batch_size=8, verbose=0)

    subject = subject_of(*map(keras.layers.Dense, (128, 256, 384, 1)), inputs=keras.Input((64,)))
    values = compute_gradients(subject)
    gradients, choice = describe(subject, values), Choice("ours", params)
    costs = {"ours": measure_codec(choice, gradients, values, repeats=1)}
    sent = predict(choice, gradients, COMPUTE, costs, Link(4, 1e9)).sent_bytes
    # Messages of shards have headers and whole blocks.
    assert sent == pytest.approx(strategy.traffic.sent_bytes, rel=0.01)
    stock = predict(STOCK, gradients, COMPUTE, {}, Link(4, 1e9)).sent_bytes
    assert stock == pytest.approx(strategy.traffic.stock_bytes, abs=8)


def test_what_is_measured_of_a_model() -> None:
    embedding = keras.layers.Embedding(5000, 64)
    layers = [embedding, keras.layers.Flatten(), keras.layers.Dense(64)]
    subject = subject_of(
        *layers, keras.layers.BatchNormalization(), inputs=keras.Input((6,), dtype="int32")
    )
    compute = measure_compute(subject, repeats=2)
    assert min(compute.forward, compute.backward, compute.update) >= 0
    assert compute.total > 0
    values = compute_gradients(subject)
    gradients = describe(subject, values)
    # 4 samples of 6 words: rows of 64 float32, and their numbers, which are int32.
    assert gradients.sparse_bytes == (24 * (64 * 4 + 4),)
    elements = [known and known.elements for known in gradients.gradients]
    assert elements == [320_000, 24_576, 64, 64, 64]
    assert gradients.state_bytes == 2 * 64 * 4
    for choice, bits in zip(CHOICES, (1.125, 2.125, 3.125, 4.125), strict=True):
        by_wire = measure_codec(choice, gradients, values, repeats=1)
        wires = WIRES if bits > 2 else ["packed"]
        assert sorted(by_wire) == sorted([*wires, "rows"])
        assert 8 * 24 <= by_wire["rows"].bits < 8 * gradients.sparse_bytes[0]
        cost = by_wire["packed"]
        assert min(cost.encode, cost.decode, cost.add) >= 0
        assert cost.bits == pytest.approx(bits, rel=0.05)  # and a header
    assert measure_codec(STOCK, gradients, values, repeats=1) == {}
