"""The wires over real worker processes: one result, fewer bytes, one choice of all workers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.cases import cases, matrix
from tests.multiworker import cluster
from tests.multiworker.wire_scenarios import EVERY_TENSOR
from tf_gc.reducers.wire import COMPACT_BELOW, WIRES

pytestmark = pytest.mark.multiworker


def assert_same_bits(mine: Any, theirs: Any) -> None:
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


@cases(
    "kinds, chosen",
    ([{"type": "quantized"}], ["hierarchical"]),
    (
        [
            {"type": "2bit", "threshold": 4.0, "plan": "scatter_gather"},
            {"type": "2bit", "plan": "scatter_gather"},
        ],
        ["scatter_gather", "scatter_gather"],
    ),
)
def test_training_has_the_same_bits_on_each_wire(
    kinds: list[dict[str, Any]], chosen: list[str]
) -> None:
    params = [kind | EVERY_TENSOR for kind in kinds]
    of_workers = cluster.values("wire_scenarios:on_each_wire", params, devices=2)
    plans = []
    for (packed, compact), others in zip(*of_workers, strict=True):
        for other in (compact, *others):
            for what in ("weights", "sums", "residuals"):
                assert_same_bits(packed[what], other[what])
        assert np.isnan(compact["sums"][1][77])
        for before, after in zip(packed["traffic"], compact["traffic"], strict=True):
            assert (before.wire, after.wire) == ("packed", "compact")
            assert after.sent_bytes < before.sent_bytes
            assert not after.at_most
            assert after == dataclasses.replace(before, sent_bytes=after.sent_bytes, wire="compact")
        assert compact["traffic"] == others[1]["traffic"]
        plans.append(compact["traffic"][-1].plan)
    assert plans == chosen


@matrix
def test_another_device_of_the_host_may_pack_and_send() -> None:
    plans = ["all_gather", "scatter_gather", "hierarchical"]
    workers = cluster.values("wire_scenarios:sent_by_another_device", plans, devices=2)
    for first, second in zip(*workers, strict=True):
        for of_wires in (first, second):
            for other in (*first, *second):
                assert_same_bits(of_wires[0][:-1], other[:-1])  # sums
            for other in of_wires:
                assert_same_bits(of_wires[0][-1:], other[-1:])  # residuals


@matrix
def test_a_worker_that_traces_its_step_anew_sends_as_much_as_the_others() -> None:
    packed, *others = (cluster.values("wire_scenarios:traced_anew", w) for w in WIRES)
    for other in (*packed[1:], *(values for of_wire in others for values in of_wire)):
        assert_same_bits(packed[0], other)


def test_all_workers_choose_one_wire_by_the_slowest_rate() -> None:
    params = [{"type": "2bit", "wire": "packed"}, {"type": "2bit", "wire": "compact"}]
    params += [{"type": "1bit"}, {"type": "quantized"}]
    first, second = cluster.values("wire_scenarios:chosen_wires", params)
    assert first == second
    *unmeasured, (rate, wire) = first
    assert unmeasured == [(None, "packed"), (None, "compact"), (None, "packed")]
    assert wire == ("compact" if rate < COMPACT_BELOW else "packed")
