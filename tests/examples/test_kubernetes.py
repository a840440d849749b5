"""The manifests fit the published schemas, and the launcher makes TF_CONFIG of their commands."""

import json
import socket
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api import models

from tf_gc.launch import __main__ as launch

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
    ("kind", "host"), [("Job", "trainer-{}"), ("ClusterTrainingRuntime", "trainer-node-0-{}")]
)
def test_the_command_makes_tf_config(
    kind: str, host: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "Job":
        pod = manifests("job.yaml")[kind]["spec"]["template"]
    else:
        jobs = manifests("kubeflow.yaml")[kind]["spec"]["template"]["spec"]["replicatedJobs"]
        pod = jobs[0]["template"]["spec"]["template"]
    container = pod["spec"]["containers"][0]
    command = [*container["command"], *container.get("args", [])]
    for name, value in {"$(JOB_SET)": "trainer", "$(WORKERS)": "2"}.items():  # as Kubernetes does
        command = [word.replace(name, value) for word in command]
    assert command[:3] == ["python", "-m", "tf_gc.launch"]

    monkeypatch.setattr(sys, "argv", ["launch", "--dry-run", *command[3:]])
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    monkeypatch.setattr(socket, "gethostname", lambda: host.format(1))
    assert launch.main() == 0
    config = json.loads(capsys.readouterr().out.splitlines()[1].removeprefix("worker 1: "))
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["cluster"]["worker"] == [f"{host.format(i)}.trainer:8888" for i in range(2)]
