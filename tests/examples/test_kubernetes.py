"""The manifests fit the published schemas, and their commands make TF_CONFIG."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api import models

FOLDER = Path(__file__).parents[2] / "examples" / "kubernetes"
OF_KUBEFLOW = {
    "ClusterTrainingRuntime": models.TrainerV1alpha1ClusterTrainingRuntime,
    "TrainJob": models.TrainerV1alpha1TrainJob,
}


def manifests(file: str) -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all((FOLDER / file).read_text())}


def assert_keeps(parsed: Any, manifest: Any) -> None:
    """Kubeflow's classes drop what they do not know, and add defaults."""
    if isinstance(manifest, dict):
        for key, value in manifest.items():
            assert key in parsed
            assert_keeps(parsed[key], value)
    elif isinstance(manifest, list):
        for mine, value in zip(parsed, manifest, strict=True):
            assert_keeps(mine, value)
    else:
        assert parsed == manifest


@pytest.mark.parametrize("file", ["job.yaml", "kubeflow.yaml"])
def test_they_fit_the_schemas(file: str) -> None:
    for kind, manifest in manifests(file).items():
        if kind in OF_KUBEFLOW:
            assert_keeps(OF_KUBEFLOW[kind].from_dict(manifest).to_dict(), manifest)
        else:
            for version in ("1.28", kubernetes_validate.latest_version()):
                kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize(
    ("kind", "first"),
    [("Job", "trainer-0.trainer:8888"), ("Runtime", "trainer-node-0-0.trainer:8888")],
)
def test_the_command_makes_tf_config(kind: str, first: str, tmp_path: Path) -> None:
    if kind == "Job":
        pod = manifests("job.yaml")["Job"]["spec"]["template"]
    else:
        runtime = manifests("kubeflow.yaml")["ClusterTrainingRuntime"]["spec"]["template"]
        pod = runtime["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    container = pod["spec"]["containers"][0]
    (tmp_path / "train.py").write_text("import os\nprint(os.environ['TF_CONFIG'])\n")
    known = {"WORKERS": "2", "JOB_SET": "trainer", "JOB_COMPLETION_INDEX": "1"}
    output = subprocess.check_output(
        [sys.executable, *container["command"][1:], *container["args"]],
        cwd=tmp_path,
        env={**os.environ, **known},
        text=True,
    )
    config = json.loads(output)
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["cluster"]["worker"] == [first, first.replace("0.trainer", "1.trainer")]
