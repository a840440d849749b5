"""A new plan needs one class in the list of plans; and how plans may differ."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.strategies.helpers import normal, summing
from tf_gc.codecs import Codec
from tf_gc.network.group import Network, Replica
from tf_gc.reducers import codes
from tf_gc.reducers.plan import Plan
from tf_gc.reducers.reducer import Reduction

SHAPES = [(3000,), (7, 100)]


class Star(Plan):
    """Point to point: each replica sends its message to one device, and gets the sum from it."""

    plan = "star"

    def __init__(self, codec: Codec, wire: str, network: Network) -> None:
        super().__init__(codec, wire, network)
        self._server = network.devices[0]

    @classmethod
    def cost(cls, codec: Codec, network: Network) -> float:
        return float("inf")

    def reduce(self, bucket: int, replicas: Sequence[Replica], options: Any) -> Reduction:
        codec = self.codec
        messages = []
        for replica in replicas:
            with tf.device(replica.device):
                messages.append(codec.encode(replica.gradients, replica.residuals))
        with tf.device(self._server):
            total = codec.decode(messages, replicas[0].gradients)
        sums = []
        for replica in replicas:
            with tf.device(replica.device):
                sums.append([tf.identity(value) for value in total])
        # Only the step may know how many bytes are sent.
        sent = tf.cast(tf.size(messages[0]), tf.int64) * messages[0].dtype.size
        count_sent = functools.partial(codec.count_sent, messages[0])
        return Reduction(sums, replicas[0], count_sent, sent)


@cases("eager", False, True)
def test_a_plan_may_be_point_to_point(monkeypatch: pytest.MonkeyPatch, eager: bool) -> None:
    monkeypatch.setattr(codes, "PLANS", (*codes.PLANS, Star))
    steps = [normal(SHAPES, step, replicas=3) for step in range(3)]
    results = []
    for plan in ("all_gather", "star"):
        params = tf_gc.TwoBit(warm_up=False, bypass_size=0, plan=plan)
        strategy, run = summing(params, *SHAPES, replicas=3, eager=eager)
        results.append([run(gradients) for gradients in steps])
    np.testing.assert_equal(*results)
    # A header of 16 bytes, and 24 and 6 blocks of 34 bytes, up to a multiple of 16.
    assert strategy.traffic.plan == "star"
    assert strategy.traffic.sent_bytes == 16 + 30 * 34 + 4
