"""A bad number on one worker stops all of them after the same step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases import cases
from tests.multiworker import cluster

pytestmark = pytest.mark.multiworker


@cases("worker", 1, 0)
def test_terminate_on_nan_stops_all_workers_at_the_same_step(worker: int) -> None:
    step = 3
    params = [
        {"type": "2bit", "threshold": threshold, "warm_up": False, "bypass_size": 0, "plan": plan}
        for plan in ("all_gather", "scatter_gather")
        for threshold in ("auto", 0.01)
    ] + [{"type": "none"}]
    first, second = cluster.values("bad_number_scenarios:terminate_on_nan", params, worker, step)
    for (count, kernel, finite), (others_count, others_kernel, others_finite) in zip(
        first, second, strict=True
    ):
        assert count == others_count == step + 1
        np.testing.assert_array_equal(kernel, others_kernel)
        assert finite
        assert others_finite
