"""The arguments of the strategy that the base class has too."""

from pathlib import Path

import pytest

from tests import ports
from tests.cases import cases, matrix
from tests.multiworker import cluster

pytestmark = [pytest.mark.multiworker, pytest.mark.waits]


@matrix
def test_resolver_and_communication_options_are_honoured(tmp_path: Path) -> None:
    arguments = ports.addresses(2), str(tmp_path)
    first, second = cluster.values("scenarios:options_are_honoured", *arguments)
    for result in (first, second):
        assert result["workers"] == 2
        assert result["is_given_resolver"]
        assert result["sum"] == [1.0] * 6
        assert result["gathers"] == 3  # two tensors fill a bucket of 8,000 bytes
        assert result["implementations"] == {b"ring"}
        assert result["timeouts"] == {0.0}  # TensorFlow's own, which may crash
        assert result["deadlines"] == [20.0] * 3
    assert first["error"] == "DeadlineExceededError"
    assert first["waited"] > 19


@cases("late", [1, 2], [0])
def test_workers_need_not_make_their_next_strategy_at_the_same_time(late: list[int]) -> None:
    # TensorFlow drops what others asked this worker for when it joins the cluster again.
    params = {"type": "2bit", "threshold": 0.5, "bypass_size": 0}
    for sums in cluster.values("scenarios:strategies_apart", late, params, workers=3):
        assert sums == ["1.5"] * 3
