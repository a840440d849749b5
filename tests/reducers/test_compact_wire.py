"""The compact wire sends fewer bytes, and nothing else is different."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.strategies.helpers import normal, reducer, strategy_of, summing, variables_of
from tf_gc.codecs import NativeCodec
from tf_gc.network.group import LocalChannel, LocalNetwork
from tf_gc.params import CompressionParams
from tf_gc.reducers.codes import PLANS, Codes
from tf_gc.reducers.compact_channel import CompactChannel
from tf_gc.reducers.flat_plans import AllGather, ScatterGather
from tf_gc.reducers.hierarchical import Hierarchical
from tf_gc.reducers.wire import COMPACT_BELOW, WIRES, choose_wire

SHAPES = [(70, 100), (1,), (129,), (60_000,), (600, 100)]
EVERY_TENSOR: dict[str, Any] = {"warm_up": False, "bypass_size": 0}
AUTO = NativeCodec("three_bit", "auto", "four_bit")


def with_few_large_elements(replicas: int, seed: int) -> list[np.ndarray]:
    """In the last one in few columns. One step has bad numbers."""
    gradients = [gradient**3 for gradient in normal(SHAPES, seed, replicas, scale=0.7)]
    gradients[-1] *= np.arange(100) % 7 == 0
    if seed == 1:
        gradients[3][-1, 5] = np.nan
        gradients[0][0, 0, 7] = np.inf
    return gradients


@cases(
    "params, plan, replicas, eager, bucket_bytes",
    (tf_gc.Quantized(**EVERY_TENSOR), "scatter_gather", 3, False, 0),
    (tf_gc.TwoBit(0.5, bypass_size=0), "all_gather", 2, False, 0),
    (tf_gc.TwoBit(**EVERY_TENSOR), "scatter_gather", 3, True, 0),
    (tf_gc.Quantized(4, **EVERY_TENSOR), "all_gather", 2, False, 0),
    (tf_gc.Quantized(8, **EVERY_TENSOR), "scatter_gather", 3, False, 0),
    (tf_gc.Quantized(sum_bits=3, **EVERY_TENSOR), "scatter_gather", 2, False, 100_000),
    ids=str,
)
def test_sums_and_residuals_have_the_same_bits(
    params: Any, plan: str, replicas: int, eager: bool, bucket_bytes: int
) -> None:
    options = {"replicas": replicas, "eager": eager, "bucket_bytes": bucket_bytes}
    of_wires = [dataclasses.replace(params, plan=plan, wire=wire) for wire in WIRES]
    pairs = [summing(of_wire, *SHAPES, **options) for of_wire in of_wires]
    strategies, runs = zip(*pairs, strict=True)
    # A message that is not finite is not compact, nor is what is sent in the step after it.
    for seed in range(4):
        gradients = with_few_large_elements(replicas, seed)
        results = [run(gradients) for run in runs]
        np.testing.assert_equal(*results)
        assert np.isnan(results[0][0][3][5]) == (seed == 1)
    packed, compact = strategies
    residuals = [
        [
            [part.numpy() for part in residual.values]
            for residual in each.compression_state.variables
        ]
        for each in strategies
    ]
    np.testing.assert_equal(*residuals)
    assert (len(compact.schedule.buckets) > 1) == (bucket_bytes > 0)
    assert compact.traffic.sent_bytes < packed.traffic.sent_bytes
    assert (packed.traffic.wire, compact.traffic.wire) == WIRES
    assert compact.traffic.plan == packed.traffic.plan == plan
    assert compact.traffic.stock_bytes == packed.traffic.stock_bytes


@cases(
    "params",
    *(tf_gc.Quantized(bits, **EVERY_TENSOR) for bits in (8, 3)),
    tf_gc.TwoBit(0.5, bypass_size=0),
    ids=str,
)
def test_columns_that_are_alike_are_sent_in_fewer_bytes(params: CompressionParams) -> None:
    random = np.random.default_rng(0)
    signs = random.choice([-1, 0, 1], size=384)
    gradients = (signs * random.uniform(0.1, 2, size=(2, 640, 384))).astype("f")
    compact = dataclasses.replace(params, wire="compact", plan="all_gather")
    sent = []
    # A vector has no columns; a matrix beside it has others.
    for shape in ((640, 384), (640 * 384,)):
        strategy, run = summing(compact, shape, (600, 128))
        run([gradients.reshape(2, *shape), np.zeros((2, 600, 128), "f")])
        assert len(strategy.schedule.buckets) == 1
        sent.append(strategy.traffic.sent_bytes)
    assert sent[0] < 0.9 * sent[1]


def test_as_much_is_sent_as_in_the_step_before_or_what_is_needed() -> None:
    params = tf_gc.TwoBit(0.5, bypass_size=0, wire="compact", plan="all_gather")
    strategy = strategy_of(params)
    size = 100_000
    variables = variables_of(strategy, (size,))
    # Two functions of one model, which know of each other's messages.
    runs = [reducer(strategy, variables) for _ in range(2)]
    codec = params.specs()[0].codec
    residuals = [tf.Variable(tf.zeros(size)) for _ in range(2)]
    known = 0
    sent = []
    for step, share in enumerate((0.02, 0.02, 0.5, 0.02, 0.02)):
        random = np.random.default_rng(step)
        gradients = ((random.random((2, size)) < share) * 0.5).astype("f")
        packed = [
            codec.pack(codec.encode([tf.constant(mine)], [residual]))
            for mine, residual in zip(gradients, residuals, strict=True)
        ]
        longest = max(int(words[0]) for _, words in packed)
        result = runs[step % 2]([gradients])
        np.testing.assert_allclose(result[0][0], (gradients > 0).sum(0) * 0.5)
        assert strategy.traffic.sent_bytes == 8 * (1 + max(known, longest))
        known = longest + longest // 64
        sent.append(strategy.traffic.sent_bytes)
    assert sent[3] > 3 * sent[4] > 3 * 8 * size * 2 / 64 / 16


def test_an_all_to_all_sends_as_much_as_in_the_step_before_or_what_is_needed() -> None:
    codec = NativeCodec("two_bit", "auto", "two_bit")
    notes: dict[Any, Any] = {}
    size = 30_000

    @tf.function
    def exchanged(rows: tf.Tensor) -> Any:
        channel = CompactChannel(LocalChannel(3), codec, range(3), notes)
        received = [tf.concat(mine, axis=0) for mine in channel.all_to_all(tf.unstack(rows))]
        return tf.stack(received), channel.sent_bytes

    known = 0
    for step, share in enumerate((0.02, 0.02, 0.5, 0.02, 0.02)):
        random = np.random.default_rng(step)
        gradients = (random.normal(size=(9, size)) * (random.random((9, size)) < share)).astype("f")
        gradients[4, :4000] = 1  # one is longer
        messages = [codec.encode([mine], [tf.Variable(tf.zeros(size))]) for mine in gradients]
        longest = max(int(codec.pack(message)[1][0]) for message in messages)
        rows = np.reshape(messages, (3, 3, -1))
        received, sent = exchanged(tf.constant(rows))
        np.testing.assert_array_equal(received, np.swapaxes(rows, 0, 1))
        assert sent == 2 * 8 * (1 + max(known, longest))
        known = longest + longest // 64
    graph = exchanged.get_concrete_function(tf.TensorSpec(rows.shape, tf.int64)).graph
    unpacked = [op.inputs[0] for op in graph.get_operations() if op.type == "TfGc>Unpack"]
    assert sum(compact.shape[0] for compact in unpacked) == 3 * 2  # what the others sent


def test_only_what_was_packed_is_sent() -> None:
    random = np.random.default_rng(0)
    codec = NativeCodec("two_bit", "auto", "two_bit")
    messages = [
        codec.encode(
            [tf.constant(random.normal(size=n).astype("f") ** 3 * (np.arange(n) < used))],
            [tf.Variable(tf.zeros(n))],
        )
        for n, used in ((100_000, 100), (100_000, 50_000), (100_000, 0))
    ]
    longest = max(int(codec.pack(message)[1][0]) for message in messages)
    channel = CompactChannel(LocalChannel(3), codec, range(3), {})
    for received in channel.all_gather(messages):
        np.testing.assert_array_equal(tf.concat(received, axis=0), tf.concat(messages, axis=0))
    # To two others: a word with the length, and then as much as the longest message takes.
    assert channel.sent_bytes == 2 * 8 + 2 * 8 * longest
    assert channel.most_bytes == 2 * 8 + 2 * 8 * messages[0].shape[1]

    rows = [tf.concat(messages[i:] + messages[:i], axis=0) for i in range(3)]
    channel = CompactChannel(LocalChannel(3), codec, range(3), {})
    for rank, received in enumerate(channel.all_to_all(rows)):
        np.testing.assert_array_equal(tf.concat(received, 0), [row[rank] for row in rows])
    assert channel.sent_bytes == 2 * 8 + 2 * 8 * longest


def test_small_messages_and_sums_of_a_fixed_threshold_are_sent_as_they_are() -> None:
    codec = NativeCodec("two_bit", 0.5, "two_bit")
    small = tf.zeros([3, 500], tf.int64)  # not even a message
    channel = CompactChannel(LocalChannel(3), codec, range(3), {})
    for received in channel.all_gather([small] * 3):
        assert received == [small] * 3
    for received in channel.all_to_all([small] * 3):
        np.testing.assert_array_equal(received, [small[:1]] * 3)
    assert channel.sent_bytes == channel.most_bytes == 4000 * (3 * 2 + 2)
    counts = tf.zeros([1, 660], tf.int64)  # as many bytes as messages that are packed
    channel = CompactChannel(LocalChannel(2), codec, range(2), {})
    assert channel.all_gather_sums([counts, counts]) == [[counts, counts]] * 2
    assert channel.sent_bytes == channel.most_bytes == 660 * 8


@cases("plan", "scatter_gather", "all_gather")
def test_loops_and_branches(plan: str) -> None:
    def replica_step(i: tf.Tensor, variable: tf.Variable) -> tf.Tensor:
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        values = tf.random.stateless_normal([60_000], [i, number])
        # Of another length in each iteration.
        values *= tf.cast(tf.range(60_000) % 5 <= i, tf.float32)
        return tf_gc.all_reduce_gradients([(values, variable)])[0]

    sums, sent = [], []
    for wire in WIRES:
        params = tf_gc.Quantized(wire=wire, plan=plan, **EVERY_TENSOR)
        strategy = strategy_of(params)
        (variable,) = variables_of(strategy, (60_000,))

        @tf.function
        def steps(count: tf.Tensor, strategy: Any = strategy, variable: Any = variable) -> Any:
            total = tf.zeros([60_000])
            for i in tf.range(count):
                if i % 3 != 1:
                    of_replicas = strategy.run(replica_step, (i, variable))
                    total += strategy.experimental_local_results(of_replicas)[0]
            return total

        for count in (1, 4):
            sums.append(steps(tf.constant(count)))
            sent.append(strategy.traffic.sent_bytes)
    np.testing.assert_array_equal(sums[:2], sums[2:])
    # In the latest iteration.
    assert 1.2 * sent[2] < sent[3] < sent[0] == sent[1]


def test_traffic_is_what_the_latest_step_sent(caplog: pytest.LogCaptureFixture) -> None:
    params = tf_gc.Quantized(wire="compact", bypass_size=100)
    strategy, run = summing(params, (50_000,), (99,))
    some = (np.random.default_rng(0).normal(size=(2, 50_000)) ** 3).astype("f")
    none, few = np.zeros((2, 50_000), "f"), np.ones((2, 99), "f")
    with caplog.at_level("INFO", logger="absl"):
        run([some, few])  # a step of the warm-up
    traffic = strategy.traffic
    packed = 16 + 391 * 50 + 2
    assert traffic.at_most
    assert traffic.sent_bytes == 99 * 4 + 8 + packed
    said = f"compact wire; a replica sends at most {traffic.sent_bytes:,} bytes a step"
    assert said in str(traffic) in caplog.text
    while strategy.traffic.at_most:
        run([none, few])
    assert 99 * 4 + 8 < strategy.traffic.sent_bytes < 2000
    run([some, few])
    measured = strategy.traffic
    assert packed / 3 < measured.sent_bytes < 99 * 4 + 8 + packed
    assert f"compact wire; a replica sends {measured.sent_bytes:,} bytes" in str(measured)
    # Another model, and then the first one again.
    other = reducer(strategy, variables_of(strategy, (40_000,)))
    other([some[:, :40_000]])
    assert strategy.traffic.at_most
    run([some, few])
    assert "compact: " in str(strategy.schedule)


class Hosts(LocalNetwork):
    def __init__(self, rate: float, hosts: int = 2, device: str = "CPU:0") -> None:
        super().__init__([device])
        self.hosts, self._rate = hosts, rate
        self.measured = 0

    def rate(self) -> float:
        self.measured += 1
        return self._rate


def test_a_wire_is_chosen_by_the_rate_between_hosts() -> None:
    for rate, expected in ((COMPACT_BELOW - 1, "compact"), (COMPACT_BELOW, "packed")):
        wire, reason = choose_wire(None, AUTO, Hosts(rate))
        assert wire == expected
        assert f"{rate / 1e6:,.0f} Mbit/s" in reason
    one_bit = NativeCodec("one_bit", "auto", "one_bit")
    for asked, network, codec, why_not_packed in (
        ("packed", Hosts(1), AUTO, None),
        ("compact", Hosts(1), AUTO, None),
        (None, Hosts(1, hosts=1), AUTO, None),
        (None, Hosts(1, device="GPU:0"), AUTO, None),
        (None, Hosts(1, device="GPU:0"), AUTO, "GPUs send"),
        (None, Hosts(1), one_bit, None),
    ):
        assert choose_wire(asked, codec, network, why_not_packed)[0] == (asked or "packed")
        assert not network.measured
    with pytest.raises(ValueError, match=r"'compact'.*1 bit.*get smaller.*'packed' or None"):
        choose_wire("compact", one_bit, LocalNetwork(["CPU:0"]))


def test_which_plans_let_the_cpu_pack() -> None:
    several, one = LocalNetwork(["GPU:0", "GPU:1"]), LocalNetwork(["GPU:0"])
    for plan in PLANS:
        assert plan.why_not_packed(LocalNetwork(["CPU:0", "CPU:1"])) is None
    for plan in (AllGather, ScatterGather):
        for gpus in (several, one):
            gpus.hosts = 1
            assert "one host's GPUs" in str(plan.why_not_packed(gpus))
            gpus.hosts = 2
        assert plan.why_not_packed(one) is None
        assert f"{plan.plan!r} several GPUs" in str(plan.why_not_packed(several))
    assert Hierarchical.why_not_packed(several) is None
    with pytest.raises(ValueError, match=r"'compact'.*'scatter_gather' several GPUs"):
        Codes(AUTO, "scatter_gather", "compact").on(several)
    several.hosts = 1
    with pytest.raises(ValueError, match=r"'compact'.*one host.*'GPU:0'.*'packed' or None"):
        Codes(AUTO, wire="compact").on(several)
