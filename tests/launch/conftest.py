"""The environment of all tests of the launcher."""

from pathlib import Path

import pytest

from tests.programs import ROOT


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # for logs
    names = ("TF_CONFIG", "SLURM_PROCID", "JOB_COMPLETION_INDEX", "CUDA_VISIBLE_DEVICES")
    for name in (*names, "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
