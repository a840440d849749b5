"""Low rank over several workers: the same bits for all, and nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases import cases
from tests.multiworker import cluster

pytestmark = pytest.mark.multiworker


@cases("workers, devices, eager", (2, 2, False), (2, 1, False), (3, 1, True))
def test_what_is_sent_and_what_is_kept_is_what_was_given(
    workers: int, devices: int, eager: bool
) -> None:
    first, *others = cluster.values(
        "low_rank_scenarios:ledger", eager, workers=workers, devices=devices
    )
    assert {other["digest"] for other in others} == {first["digest"]}
    for given, sent, left in zip(first["given"], first["sent"], first["left"], strict=True):
        total = sent if left is None else sent + left
        np.testing.assert_allclose(total, given, rtol=1e-5, atol=1e-4)
    replicas = workers * devices
    size = 4 * 2 * (128 + 192 + 288 + 160 + 400 + 140)
    vector = 2 * (replicas - 1) * 7 * 4 // replicas
    assert first["bytes"] == 2 * (replicas - 1) * size // replicas + vector
