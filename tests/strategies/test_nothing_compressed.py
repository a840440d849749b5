"""Where nothing is compressed, users are told so, and why."""

from typing import Any

import pytest
import tensorflow as tf

import tf_gc
from tests.strategies.helpers import strategy_of, variables_of


def sums(strategy: Any, shape: tuple[int, ...], sparse: bool = False) -> None:
    (variable,) = variables_of(strategy, shape)

    def gradient() -> Any:
        rows = tf.ones(shape)
        return tf.IndexedSlices(rows, tf.range(shape[0]), tf.constant(shape)) if sparse else rows

    strategy.run(lambda: tf_gc.all_reduce_gradients([(gradient(), variable)]))


WITHOUT_WARM_UP = {"type": "2bit", "warm_up": False}


@pytest.mark.parametrize(
    ("options", "sparse", "reason"),
    [
        ({"exclude": "."}, False, "1 are excluded by the pattern '.'"),
        ({}, False, "1 have fewer elements than bypass_size"),
        ({"sparse": False}, True, "1 are sparse (tf.IndexedSlices), and sparse=False"),
    ],
)
def test_the_log_says_once_why(
    options: dict[str, Any], sparse: bool, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    mine = strategy_of({**WITHOUT_WARM_UP, **options})
    for _ in range(2):
        sums(mine, (30, 40), sparse)
    (said,) = [record.message for record in caplog.records if "nothing is comp" in record.message]
    assert reason in said
    assert "bypass_size=2048" in said  # the codec's
    assert mine.traffic.ratio == 1.0
    assert f"in full precision: 1 gradients\n  {reason}" in str(mine.schedule)


def test_a_single_replica_is_told_so_when_its_strategy_is_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    alone = strategy_of(replicas=1)
    why = "nothing is compressed: one replica has nothing to communicate"
    for _ in range(2):
        assert str(alone.traffic) == str(alone.schedule) == why
        assert str(alone.report()).endswith(f"\n{why}")
        sums(alone, (30, 100))
    assert caplog.messages == [f"tf_gc: {why}"]
    off = strategy_of({"type": "none"}, 1)
    assert off.traffic is off.schedule is None
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("params", "shape"), [({"type": "none"}, (3, 4)), (WITHOUT_WARM_UP, (30, 100))]
)
def test_others_are_not_told(
    params: Any, shape: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    sums(strategy_of(params), shape)
    assert not [record for record in caplog.records if "nothing is comp" in record.message]
