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
    # Each codec under one of the plans; with op determinism, each plan with another codec.
    default = [{**codec, "plan": plans[i % len(plans)]} for i, codec in enumerate(CODECS)]
    op_determinism = [{**CODECS[i - 1], "plan": plan} for i, plan in enumerate(plans)]
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
        assert len(set(digests)) == len(digests) > 0  # that codecs differ: it is no constant
