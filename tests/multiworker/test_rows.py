"""Sums of sparse gradients over real worker processes."""

from typing import Any

import numpy as np
import pytest

from tests.multiworker import cluster

pytestmark = pytest.mark.multiworker

ALL = {"type": "quantized", "sparse": True}
KEEPING: list[dict[str, Any]] = [{**ALL, "bits": bits, "warm_up": False} for bits in (1, 2, 3, 4)]
WITH_WARM_UP: list[dict[str, Any]] = [ALL, {"type": "auto", "params": ALL}]
TWO_LAYERS: list[dict[str, Any]] = [{**ALL, "sparse_residual_bytes": 0, "warm_up": False}]


@pytest.mark.parametrize(
    ("workers", "devices", "params"),
    [
        (2, 1, [*KEEPING, *WITH_WARM_UP, *TWO_LAYERS]),
        (3, 1, [KEEPING[0], KEEPING[3], WITH_WARM_UP[1], *TWO_LAYERS]),
        (2, 2, [KEEPING[1], KEEPING[2], WITH_WARM_UP[0], *TWO_LAYERS]),
    ],
    ids=["two workers", "three workers", "two workers with two devices each"],
)
def test_sent_plus_residuals_is_the_sum_of_the_rows(
    workers: int, devices: int, params: list[dict[str, Any]]
) -> None:
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
    sent_bytes, stock_bytes = np.sum(of_workers[0][1]["sizes"], axis=0)
    assert 0 < sent_bytes < stock_bytes / 3
