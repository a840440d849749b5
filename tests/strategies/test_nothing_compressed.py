"""A model of which nothing is compressed is told so, once."""

from typing import Any

import pytest
import tensorflow as tf

import tf_gc
from tests.strategies.helpers import cpus


def sums(strategy: tf.distribute.Strategy, shape: tuple[int, ...], sparse: bool = False) -> None:
    with strategy.scope():
        variable = tf.Variable(tf.zeros(shape))

    def gradient() -> Any:
        values = tf.ones(shape)
        if not sparse:
            return values
        return tf.IndexedSlices(values, tf.range(shape[0]), tf.constant(shape))

    strategy.run(lambda: tf_gc.all_reduce_gradients([(gradient(), variable)]))


def strategy(params: Any) -> tf_gc.CompressedMirroredStrategy:
    return tf_gc.CompressedMirroredStrategy(cpus(2), params)


WITHOUT_WARM_UP = {"type": "2bit", "warm_up": False}


@pytest.mark.parametrize(
    ("sparse", "reason"), [(False, "fewer elements than bypass_size"), (True, "1 are sparse")]
)
def test_the_log_says_once_why(sparse: bool, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    mine = strategy(WITHOUT_WARM_UP)
    for _ in range(2):
        sums(mine, (30, 40), sparse)
    (said,) = [record.message for record in caplog.records if "nothing is comp" in record.message]
    assert reason in said
    assert "bypass_size=2048" in said  # the codec's
    assert mine.traffic is not None
    assert mine.traffic.ratio == 1.0


@pytest.mark.parametrize(
    ("params", "shape"), [({"type": "none"}, (3, 4)), (WITHOUT_WARM_UP, (30, 100))]
)
def test_others_are_not_told(
    params: Any, shape: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    sums(strategy(params), shape)
    assert not [record for record in caplog.records if "nothing is comp" in record.message]
