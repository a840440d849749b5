"""Bytes on the wire."""

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.strategies.helpers import reducer, strategy_of, variables_of
from tf_gc.network.traffic import Traffic, all_reduce_bytes


def test_a_ring_all_reduce_sends_each_byte_not_quite_twice() -> None:
    assert [all_reduce_bytes(1200, n) for n in (1, 2, 3, 4)] == [0, 1200, 1600, 1800]
    alone = Traffic("all_gather", 1, 0, 0, 1, sent_bytes=0, stock_bytes=0)
    assert alone.ratio == 1
    assert alone.completed(0, 0) == alone


@pytest.mark.parametrize(
    ("params", "sent"),
    [
        # A message: 16 bytes of header, for each block of 128 elements 32 bytes of codes and,
        # with automatic scales, 2 of scale, up to a multiple of 16.
        (tf_gc.TwoBit(), 3 * (16 + 100 * 34 + 8)),
        # Shards of 25 blocks; sums over 4 replicas have 4 bits an element.
        (tf_gc.TwoBit(0.5, plan="scatter_gather"), 3 * (16 + 25 * 32 + 16 + 25 * 64)),
        # With automatic scales they have one more bit an element.
        (tf_gc.TwoBit(plan="scatter_gather"), 3 * (16 + 25 * 34 + 14 + 16 + 25 * 50 + 14)),
    ],
    ids=str,
)
def test_a_strategy_knows_what_it_sends_and_logs_it_once(
    params: tf_gc.TwoBit, sent: int, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = strategy_of(params, 4)
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(12_800)), tf.Variable(tf.zeros(10, tf.float64))]
    assert strategy.traffic is None
    with caplog.at_level("INFO", logger="absl"):
        for _ in range(2):
            reducer(strategy, variables)([np.zeros((4, 12_800), np.float32), np.zeros((4, 10))])
    assert strategy.traffic == Traffic(
        plan="scatter_gather" if params.plan == "scatter_gather" else "all_gather",
        replicas=4,
        buckets=1,
        compressed_tensors=1,
        bypassed_tensors=1,
        sent_bytes=sent + 120,
        stock_bytes=3 * (51_200 + 80) // 2,
        bypassed_bytes=120,
    )
    (line,) = [line for line in caplog.messages if "TwoBit(" in line and "a replica sends" in line]
    assert f"{params.plan.replace('auto', 'all_gather')} among 4 replicas, 1 bucket with 1" in line
    assert f"sends {sent + 120:,} bytes a step instead of {3 * (51_200 + 80) // 2:,}" in line


def test_a_sparse_gradient_counts_what_is_gathered() -> None:
    params = tf_gc.Quantized(sparse=False)
    strategy = strategy_of(params, 3)
    variables = variables_of(strategy, (1000, 8), (10,))

    @tf.function
    def step() -> None:
        def replica() -> None:
            shape = tf.constant([1000, 8])
            rows = tf.IndexedSlices(tf.ones((4, 8)), tf.constant([1, 2, 3, 5]), shape)
            tf_gc.all_reduce_gradients(zip([rows, tf.ones(10)], variables, strict=True))

        strategy.run(replica)

    step()
    assert strategy.traffic.bypassed_tensors == 2
    assert strategy.traffic.sent_bytes == 2 * (4 * 8 * 4 + 4 * 4) + 4 * 40 // 3
    assert strategy.traffic.ratio == 1
