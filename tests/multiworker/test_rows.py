"""Sums of sparse gradients over real worker processes."""

import numpy as np
import pytest

from tests.cases import cases
from tests.multiworker import cluster

pytestmark = pytest.mark.multiworker

ALL = {"type": "quantized", "sparse": True}
KEEPING = [{**ALL, "warm_up": False}]
WITH_WARM_UP = [ALL, {"type": "auto", "params": ALL}]
TWO_LAYERS = [{**ALL, "sparse_residual_bytes": 0, "warm_up": False}]


@cases("workers, devices", (2, 2), (3, 1))
def test_sent_plus_residuals_is_the_sum_of_the_rows(workers: int, devices: int) -> None:
    params = [*KEEPING, *WITH_WARM_UP, *TWO_LAYERS]
    of_workers = cluster.values(
        "rows_scenarios:rows_ledger", params, 12, workers=workers, devices=devices
    )
    for outcomes in of_workers:
        for outcome, first in zip(outcomes, of_workers[0], strict=True):
            assert outcome["bits"] == first["bits"]
            for sent, left, given, largest in zip(
                *(outcome[key] for key in ("sent", "left", "given", "largest")), strict=True
            ):
                lost = largest[:, None] / 16 if outcome is outcomes[-1] else 0
                error = 3e-5 + 1e-5 * np.abs(given) + lost
                assert (np.abs(sent + left - given) <= error).all()
    assert "a scale for each row), all_gather, rows" in of_workers[0][0]["schedule"]
    assert "two layers without residuals" in of_workers[0][-1]["schedule"]
    assert not any(left.any() for left in of_workers[0][-1]["left"])
    sent_bytes, stock_bytes = np.sum(of_workers[0][0]["sizes"], axis=0)
    assert 0 < sent_bytes < stock_bytes / 3
