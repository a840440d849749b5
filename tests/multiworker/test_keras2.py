"""tf_keras on several workers, and with parameter servers."""

from pathlib import Path

import numpy as np
import pytest

from tests.cases import matrix
from tests.multiworker import cluster

pytestmark = pytest.mark.multiworker

SMALL = {"type": "quantized", "bypass_size": 0, "warm_up": False}


@matrix
def test_workers_train_as_under_the_stock_strategy() -> None:
    ours, same = cluster.values("keras2_scenarios:train", {"type": "none"})
    stock, _ = cluster.values("keras2_scenarios:train", None)
    assert ours["bits"] == same["bits"] == stock["bits"]
    assert ours["losses"] == stock["losses"]
    assert ours["evaluated"] == stock["evaluated"]


def test_workers_train_compressed() -> None:
    first, second = cluster.values("keras2_scenarios:train", SMALL)
    assert "6 tensors, 0 tensors bypassed" in first["traffic"]
    assert first["bits"] == second["bits"]
    assert first["losses"][-1] < first["losses"][0]
    np.testing.assert_allclose(first["predicted"], second["predicted"], rtol=1e-5, atol=1e-6)


@matrix
def test_a_backup_goes_on_with_what_was_not_sent(tmp_path: Path) -> None:
    folder = str(tmp_path / "backup")
    before, _ = cluster.values("keras2_scenarios:interrupt", folder)
    first, second = cluster.values("keras2_scenarios:resume", folder)
    assert first["weights"] == second["weights"] == before["weights"]
    assert first["epochs"] == 1  # the last of three
    for mine, theirs in zip(first["totals"], before["totals"], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)
        assert np.abs(theirs).max() > 0


@matrix
@pytest.mark.parametrize(("shards", "pull"), [(1, "full"), (2, "delta")])
def test_fit_with_parameter_servers(shards: int, pull: str) -> None:
    (outcome,) = cluster.values("keras2_scenarios:fit_on_servers", shards, pull, workers=1)
    assert outcome["losses"][-1] < outcome["losses"][0]
    assert outcome["iterations"] == 160
    assert len(outcome["variables"]) == shards  # of the first kernel; the second is small
    assert all(owner.endswith(" of Adam") for owner in outcome["owners"])
    assert "legacy optimizers" in outcome["said"]
