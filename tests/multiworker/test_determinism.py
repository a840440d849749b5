"""The same seed, data and workers give the same bits in two runs, under every plan."""

from __future__ import annotations

import pytest

from tests.multiworker import cluster

pytestmark = pytest.mark.multiworker

CODECS = [
    {"type": "2bit", "bypass_size": 0, "warm_up": False},
    {"type": "2bit", "bypass_size": 0, "threshold": 0.01},
    {"type": "1bit", "bypass_size": 0, "warm_up": False},
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("workers", "devices", "plans"),
    [(3, 1, ["all_gather", "scatter_gather"]), (2, 2, ["hierarchical"])],
)
def test_two_runs_end_with_the_same_weights_and_residuals(
    workers: int, devices: int, plans: list[str]
) -> None:
    # Where there are two plans: each codec under one, and with op determinism under the other.
    default, op_determinism = (
        [{**codec, "plan": plans[(i + first) % len(plans)]} for i, codec in enumerate(CODECS)]
        for first in (0, 1)
    )
    # Forks and new processes: with other addresses and another seed of hash().
    first, second = (
        cluster.values(
            *("determinism_scenarios:digests", default, op_determinism),
            **{"workers": workers, "devices": devices, "limit": 250, "new": new},
        )
        for new in (False, True)
    )
    assert first == second
    assert first == first[:1] * workers
    for digests in first[0].values():
        assert len(set(digests)) == len(CODECS)  # that codecs differ: it is no constant
