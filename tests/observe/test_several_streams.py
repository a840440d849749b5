"""A step may sum the gradients of several streams: what is said of it is of all of them."""

import gc
import logging
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.strategies.helpers import strategy_of, variables_of
from tf_gc.state import stream

AT_ONCE = tf_gc.TwoBit(warm_up=False, bypass_size=100)
SHAPES = {"actor": (40, 60), "critic": (80, 70), "scale": (5,)}


def step_of(strategy: Any, *names: str, eager: bool = False) -> Callable[[], Any]:
    """Returns a step that sums a gradient of each of these names, each in a stream of its own."""
    variables = dict(zip(names, variables_of(strategy, *(SHAPES[n] for n in names)), strict=True))

    def replica_step() -> None:
        for name, variable in variables.items():
            gradient = tf.random.stateless_normal(variable.shape, [1, 2])
            tf_gc.all_reduce_gradients([(gradient, variable)], stream=name)

    run = lambda: strategy.run(replica_step)  # noqa: E731
    return run if eager else tf.function(run)


def bytes_of(*names: str) -> np.ndarray:
    """Returns what a step sends, and what it would by the stock ops, one stream at a time."""
    totals = []
    for name in names:
        strategy = strategy_of(AT_ONCE)
        step_of(strategy, name)()
        totals.append([strategy.traffic.sent_bytes, strategy.traffic.stock_bytes])
    return np.sum(totals, axis=0)


def sent(strategy: Any) -> list[int]:
    return [strategy.traffic.sent_bytes, strategy.traffic.stock_bytes]


@cases("eager, apart", (False, False), (True, False), (False, True))
def test_a_step_sends_the_sum_over_its_streams(eager: bool, apart: bool) -> None:
    strategy = strategy_of(AT_ONCE)
    names = ("actor", "critic", "scale")
    groups = [(name,) for name in names] if apart else [names]
    steps = [step_of(strategy, *group, eager=eager) for group in groups]
    for _ in range(3):
        for step in steps:
            step()
    assert sent(strategy) == bytes_of(*names).tolist()
    traffic, schedule, report = strategy.traffic, strategy.schedule, strategy.report()
    assert (traffic.compressed_tensors, traffic.bypassed_tensors, traffic.buckets) == (2, 1, 2)
    assert report.traffic == traffic
    assert [bucket.elements for bucket in report.buckets] == [2400, 5600]
    assert sum(bucket.sent_bytes or 0 for bucket in report.buckets) == sent(strategy)[0] - 20
    assert sorted([*schedule.compressed, *schedule.bypass]) == [0, 1, 2]
    assert len(schedule.uncompressed) == 1
    assert len(report.residual_ratios) == 2
    assert report.density is not None
    assert report.compressed_steps == 3


def test_a_stream_counts_as_long_as_it_takes_part() -> None:
    strategy = strategy_of(AT_ONCE)
    critic, actor = step_of(strategy, "critic"), step_of(strategy, "actor")
    alone, both = bytes_of("critic").tolist(), bytes_of("critic", "actor").tolist()
    seen = []
    for _ in range(3):  # the critic learns more often
        for step in (critic, critic, critic, actor):
            step()
            seen.append(sent(strategy))
    assert seen == [alone] * 3 + [both] * 9
    for _ in range(30):
        critic()
    assert sent(strategy) == alone


def test_what_is_known_stays_when_a_model_has_ended() -> None:
    strategy = strategy_of(AT_ONCE)
    step = step_of(strategy, "actor", "critic")
    step()
    before = sent(strategy)
    del step
    gc.collect()
    assert sent(strategy) == before
    step_of(strategy, "actor")()
    gc.collect()
    assert sent(strategy) == bytes_of("actor").tolist()


@cases("eager", True, False)
def test_eager_steps_count_rows_as_graphs_do(eager: bool) -> None:
    strategy = strategy_of(tf_gc.Quantized(sparse=True, warm_up=False))
    (table,) = variables_of(strategy, (5000, 16))

    def replica_step() -> None:
        rows = tf.IndexedSlices(tf.ones([30, 16]), tf.range(30), tf.constant([5000, 16]))
        tf_gc.all_reduce_gradients([(rows, table)])

    run = lambda: strategy.run(replica_step)  # noqa: E731
    for _ in range(2):
        (run if eager else tf.function(run))()
    # Each replica would gather values of 4 bytes and indices of 4.
    assert sent(strategy)[1] == 30 * (16 * 4 + 4)
    assert sent(strategy)[0] < sent(strategy)[1] / 3
    assert "and rows" not in str(strategy.traffic)


class Adversaries(keras.Model):
    """Two optimizers in a step, as a GAN has them."""

    def __init__(self) -> None:
        super().__init__()
        self.maker, self.judge = keras.layers.Dense(60), keras.layers.Dense(1)
        self.of_judge = keras.optimizers.SGD(0.01)

    def call(self, x: Any) -> Any:
        return self.judge(self.maker(x))

    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape(persistent=True) as tape:
            x, *_ = keras.utils.unpack_x_y_sample_weight(data)
            loss = keras.ops.mean(self(x, training=True) ** 2)
        for layer, optimizer in ((self.judge, self.of_judge), (self.maker, self.optimizer)):
            weights = layer.trainable_variables
            optimizer.apply(tape.gradient(loss, [w.value for w in weights]), weights)
        return {"loss": loss}


@cases("eager", False, True)
def test_two_optimizers_in_fit_have_one_verdict(
    eager: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="absl.tf_gc")
    strategy = strategy_of(tf_gc.TwoBit(warm_up=False, bypass_size=10))
    with strategy.scope():
        model = Adversaries()
        model.compile(keras.optimizers.SGD(0.01), run_eagerly=eager)
    model.fit(np.ones((4 * 35, 50), np.float32), batch_size=4, verbose=0)
    traffic = strategy.traffic
    # Gradients of 50 x 60 + 60 + 60 + 1 numbers, of which the last is not compressed.
    assert (traffic.stock_bytes, traffic.compressed_tensors) == (4 * 3121, 3)
    strategy.extended.compressed_all_reduce._measurement.log_verdicts()
    (line,) = [m for m in caplog.messages if "a replica sends" in m and "a step takes" in m]
    assert f"{traffic.sent_bytes:,} bytes a step instead of 12,484, and a step takes" in line


def test_a_stream_that_begins_is_not_judged_with_one_that_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="absl.tf_gc")
    strategy = strategy_of(AT_ONCE)
    measurement = strategy.extended.compressed_all_reduce._measurement
    measurement.logs_verdicts = False  # but here
    for count, step in enumerate([step_of(strategy, name) for name in ("actor", "critic")]):
        for number in range(40):
            step()
            if number < 3:
                measurement.log_verdicts()
                assert len(caplog.messages) == count
    measurement.log_verdicts()
    assert len(caplog.messages) == 2


def test_calls_outside_of_a_strategy_leave_nothing_behind() -> None:
    variable = tf.Variable([1.0])
    tf_gc.all_reduce_gradients([(tf.ones([1]), variable)])
    before = len(stream._by_name)
    for _ in range(10):
        tf_gc.all_reduce_gradients([(tf.ones([1]), variable)])
    assert len(stream._by_name) == before
