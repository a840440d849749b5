"""The same seed, data and workers give the same bits in two runs, under every plan."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import matrix
from tests.multiworker import cluster

pytestmark = [pytest.mark.multiworker, matrix]

AUTO = {"type": "quantized", "bypass_size": 0, "warm_up": False}
FIXED = {"type": "2bit", "bypass_size": 0, "threshold": 0.01}
ONE_BIT = {"type": "1bit", "bypass_size": 0, "warm_up": False}
LOW_RANK = {"type": "low_rank", "rank": 1, "bypass_size": 0, "warm_up": False}


# tests/keras/test_determinism.py has more of the combinations with codecs.
@pytest.mark.parametrize(
    ("workers", "devices", "default", "op_determinism"),
    [
        pytest.param(
            *(3, 1),
            [{**AUTO, "plan": "scatter_gather"}, LOW_RANK],
            [{**FIXED, "plan": "all_gather"}],
            id="flat",
        ),
        pytest.param(
            *(2, 3),
            [{**AUTO, "plan": "hierarchical"}],
            [{**ONE_BIT, "plan": "hierarchical"}],
            id="hierarchical",
        ),
    ],
)
def test_two_runs_end_with_the_same_weights_and_residuals(
    workers: int, devices: int, default: list[Any], op_determinism: list[Any]
) -> None:
    # In the second run worker 0 is a new process, with other addresses and another seed of hash()
    # than all others have: what depends on these differs between the runs or among the workers.
    first, second = (
        cluster.values(
            *("determinism_scenarios:digests", default, op_determinism),
            **{"workers": workers, "devices": devices, "new": new, "optimized": True},
        )
        for new in (0, 1)
    )
    assert first == second
    assert first == first[:1] * workers
    digests = [digest for of_mode in first[0].values() for digest in of_mode]
    assert len(set(digests)) == len(default + op_determinism)  # codecs differ: it is no constant
