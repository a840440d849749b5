"""The stock MultiWorkerMirroredStrategy and ours keep their promises, in real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import strategies
from tests.conformance.promise import promises
from tests.multiworker import cluster

pytestmark = pytest.mark.multiworker


# To start processes takes longer than to keep a promise, so that those of a cluster keep all.
@pytest.mark.parametrize(
    ("names", "devices"),
    [
        pytest.param((strategies.STOCK,), 1, id="stock"),  # which takes one CPU of each worker
        pytest.param(tuple(strategies.OURS), 1, id="ours"),
        pytest.param(tuple(strategies.OURS), 2, id="ours with two devices each"),
    ],
)
def test_workers_keep_their_promises(names: tuple[str, ...], devices: int, tmp_path: Path) -> None:
    results = cluster.values(
        "conformance_scenarios:keep_promises", names, str(tmp_path), devices=devices
    )
    broken = []
    for task, of_strategies in enumerate(results):
        assert of_strategies.keys() == set(names)
        for name, result in of_strategies.items():
            made = promises(stock=name == strategies.STOCK, workers=True)
            assert result.keys() == {promise.name for promise in made}
            broken += [f"worker {task}: {name}: {p}\n{how}" for p, how in result.items() if how]
    assert not broken, "\n".join(broken)
