"""Several workers run one program, and its files come out as if one worker had run it."""

import csv
import json
import socket
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import ports
from tests.cases import matrix
from tests.keras.stock import FEATURES
from tests.multiworker import cluster, file_scenarios

pytestmark = pytest.mark.multiworker

Report = dict[str, Any]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    """The reports of two workers that wrote to folders of their own, the chief's first."""
    top = str(tmp_path_factory.mktemp("files"))
    configs = cluster.tf_configs(2, chiefs=1)
    return cluster.values(file_scenarios.write_all_kinds, top, configs=configs)


def test_only_the_chief_writes(reports: list[Report]) -> None:
    chief, other = reports
    assert [report["chief"] for report in reports] == [True, False]
    written = sorted(path.name for path in Path(chief["folder"]).iterdir())
    kinds = "archive backup best board checkpoints epochs exported log.csv model.keras"
    orbax = ["orbax"] if hasattr(keras.callbacks, "OrbaxCheckpoint") else []
    assert written == [*kinds.split(), "model.weights.h5", "monitor", *orbax]
    assert not Path(other["folder"]).exists()
    # `write_path` is the path on the chief and a temporary one elsewhere.
    assert chief["directory"] == chief["asked"]
    assert other["directory"].name == "checkpoints"
    assert chief["directory"].exists()
    assert not other["directory"].exists()
    for report in reports:
        assert report["again"] == str(report["directory"])
        assert report["kept"] == [False, True, True]
        assert report["waited"], "fit returned before the chief had written"
        assert report["own_model"], "a model of no strategy is saved where its worker says"


def test_all_workers_decide_the_same(reports: list[Report]) -> None:
    chief, other = reports
    assert chief["history"] == other["history"]
    assert chief["learning_rate"] == other["learning_rate"] < 0.5
    assert len(chief["history"]["loss"]) < 30
    # Not all weights: each replica has moving averages of its own in BatchNormalization.
    np.testing.assert_equal(chief["trained"], other["trained"])


def test_the_chiefs_files_are_complete(reports: list[Report]) -> None:
    chief = reports[0]
    folder, epochs = Path(chief["folder"]), len(chief["history"]["loss"])
    x = np.random.default_rng(0).normal(size=(5, FEATURES)).astype("float32")

    model = keras.models.load_model(folder / "model.keras")
    np.testing.assert_equal(model.get_weights(), chief["weights"])
    expected = model.predict(x, verbose=0)
    np.testing.assert_equal(
        keras.models.load_model(folder / "archive").get_weights(), chief["weights"]
    )
    exported = tf.saved_model.load(folder / "exported")
    np.testing.assert_allclose(exported.serve(x), expected, rtol=1e-5, atol=1e-6)
    for weights in (folder / "model.weights.h5", folder / "best" / "model.weights.h5"):
        model.load_weights(weights)
    saved = [keras.models.load_model(path) for path in sorted((folder / "epochs").iterdir())]
    assert len(saved) == epochs
    checkpoint = tf.train.Checkpoint(model=model)
    latest = tf.train.latest_checkpoint(folder / "checkpoints")
    checkpoint.restore(latest).assert_existing_objects_matched()
    np.testing.assert_equal(model.get_weights(), chief["weights"])
    model.load_weights(folder / "backup" / "latest.weights.h5")
    metadata = json.loads((folder / "backup" / "training_metadata.json").read_text())
    assert metadata["epoch"] == epochs


def test_the_chiefs_logs_are_complete(reports: list[Report]) -> None:
    chief = reports[0]
    folder, losses = Path(chief["folder"]), chief["history"]["loss"]
    rows = list(csv.DictReader((folder / "log.csv").read_text().splitlines()))
    assert [float(row["loss"]) for row in rows] == losses
    assert len(list((folder / "monitor").iterdir())) == 1
    (events,) = (folder / "board" / "train").iterdir()
    summaries = tf.compat.v1.train.summary_iterator(str(events))
    tags = [value.tag for event in summaries for value in event.summary.value]
    assert tags.count("keras") == 1  # the model
    assert tags.count("epoch_loss") == len(losses)


@matrix
def test_a_restarted_job_goes_on_from_the_backup_on_all_workers(tmp_path: Path) -> None:
    plain, double = tmp_path / "plain", tmp_path / "double"
    first = cluster.values(file_scenarios.interrupted, str(plain), str(double))
    latest = double / "latest.weights.h5"
    latest.write_bytes(latest.read_bytes()[:1000])  # the job was killed while it wrote this
    second = cluster.values(file_scenarios.restarted, str(plain), str(double))

    # All workers start with what the chief had, also where replicas differ.
    (started, resumed, doubled), _ = first
    for interrupted, restarted in zip(first, second, strict=True):
        assert [run["epoch"] for run in interrupted] == [0, 1, 0]
        assert not any(run["ended"] for run in interrupted)
        np.testing.assert_equal(interrupted[1]["start"], started["end"])
        assert [run["epoch"] for run in restarted] == [2, 0, 1]
        assert all(run["ended"] and not run["left"] for run in restarted)
        np.testing.assert_equal(restarted[0]["start"], resumed["end"])
        np.testing.assert_equal(restarted[2]["start"], doubled["second"])


def test_workers_that_see_different_backups_all_say_so(tmp_path: Path) -> None:
    for errors in cluster.values(file_scenarios.backups_that_differ, str(tmp_path)):
        assert len(errors) == 2
        assert all("file system that they share" in error for error in errors)


def configs_with_evaluator(in_cluster: bool) -> list[str]:
    """TF_CONFIG of two workers and of their evaluator, which the cluster may know."""
    *addresses, evaluator = ports.addresses(3)
    jobs = {"worker": addresses, **({"evaluator": [evaluator]} if in_cluster else {})}
    tasks = [("worker", 0), ("worker", 1), ("evaluator", 0)]
    return [json.dumps({"cluster": jobs, "task": {"type": t, "index": i}}) for t, i in tasks]


def test_an_evaluator_is_alone_and_writes_its_own_files_only(tmp_path: Path) -> None:
    *workers, evaluator = cluster.run(
        file_scenarios.beside_workers, str(tmp_path), configs=configs_with_evaluator(False)
    )
    reports = [outcome.value for outcome in (*workers, evaluator)]
    assert [report["replicas"] for report in reports] == [2, 2, 1]
    assert [report["chief"] for report in reports] == [True, False, False]
    assert [report["same"] for report in reports] == [True, False, False]
    assert reports[0]["loss"] == reports[1]["loss"]
    assert np.isfinite(reports[2]["loss"]).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "mine.keras", "worker"]
    assert list((tmp_path / "mine" / "validation").iterdir())
    warning = "this process is an evaluator, and the chief writes"
    assert [outcome.log.count(warning) for outcome in (*workers, evaluator)] == [0, 0, 1]
    assert str(tmp_path / "evaluator") in evaluator.log


@matrix
def test_an_evaluator_needs_no_workers_and_no_port(tmp_path: Path) -> None:
    *_, config = configs_with_evaluator(True)
    address = json.loads(config)["cluster"]["evaluator"][0]
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        (report,) = cluster.values(
            file_scenarios.beside_workers, str(tmp_path), configs=[config], devices=2
        )
    assert report["replicas"] == 2
