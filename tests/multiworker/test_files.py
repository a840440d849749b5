"""Several workers run one program, and its files come out as if one worker had run it."""

import contextlib
import csv
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests import ports
from tests.cases import matrix
from tests.keras.stock import FEATURES, compiled, data, normalized_mlp
from tests.multiworker import cluster

pytestmark = pytest.mark.multiworker

PLATEAU = 0.1


def make_model(strategy: tf.distribute.Strategy, learning_rate: float = 0.5) -> keras.Model:
    sgd = lambda: keras.optimizers.SGD(learning_rate, momentum=0.9)  # noqa: E731
    return compiled(strategy, lambda: normalized_mlp(False), sgd)


def fit(model: keras.Model, callbacks: list[Any], epochs: int, **options: Any) -> Any:
    settings = {"batch_size": 32, "shuffle": False, "verbose": 0, **options}
    return model.fit(*data(), epochs=epochs, callbacks=callbacks, **settings).history


class Orbax(getattr(keras.callbacks, "OrbaxCheckpoint", keras.callbacks.Callback)):  # type: ignore[misc]
    """Keras' callback with a checkpointer that needs no library; it has the folder for itself."""

    def __init__(self, directory: Path) -> None:
        keras.callbacks.Callback.__init__(self)
        self.directory, self.checkpointer = str(directory), Checkpointer(directory)
        self.save_freq = "epoch"

    def set_model(self, model: keras.Model) -> None:
        keras.callbacks.Callback.set_model(self, model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.checkpointer.save(epoch, [variable.numpy() for variable in self.model.variables])

    def on_train_end(self, logs: Any = None) -> None:
        self.checkpointer.close()


class Checkpointer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, values: list[np.ndarray]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        np.savez(self.folder / str(step), *values)

    def close(self) -> None:
        """Nothing is open."""


def write_all_kinds(top: str) -> dict[str, Any]:
    """Writes every kind of file to a folder that only this worker is given."""
    params = tf_gc.Quantized(warm_up=False, bypass_size=0)
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
    resolver = strategy.cluster_resolver
    folder = Path(top, f"{resolver.task_type}{resolver.task_id}")
    if strategy.is_chief:
        folder.mkdir()  # on other workers nothing may appear there
    late, best = Path(top, "late"), str(folder / "best" / "model.weights.h5")

    def write_late(logs: Any) -> None:
        if strategy.is_chief:
            time.sleep(1)
            late.touch()

    model = make_model(strategy)
    callbacks = keras.callbacks
    history = fit(
        model,
        [
            callbacks.ModelCheckpoint(folder / "epochs" / "{epoch:02d}-{val_loss:.3f}.keras"),
            callbacks.ModelCheckpoint(best, save_weights_only=True, save_best_only=True),
            callbacks.BackupAndRestore(folder / "backup", delete_checkpoint=False),
            callbacks.CSVLogger(folder / "log.csv"),
            callbacks.ReduceLROnPlateau(patience=1, factor=0.5, min_delta=PLATEAU),
            callbacks.EarlyStopping(patience=2, min_delta=PLATEAU, restore_best_weights=True),
            callbacks.TensorBoard(folder / "board", histogram_freq=1),
            tf_gc.keras.CompressionMonitor(folder / "monitor", every=2),
            *([Orbax(folder / "orbax")] if hasattr(callbacks, "OrbaxCheckpoint") else []),
            callbacks.LambdaCallback(on_train_end=write_late),
        ],
        epochs=30,
        validation_data=data(),
    )
    waited = late.exists()
    model.save(folder / "model.keras")
    model.save(str(folder / "archive"), zipped=False)
    model.save_weights(filepath=folder / "model.weights.h5")
    model.export(folder / "exported", verbose=False)
    checkpoint = tf.train.Checkpoint(model=model, compression=strategy.compression_state)
    directory = strategy.write_path(folder / "checkpoints")
    manager = tf.train.CheckpointManager(checkpoint, str(directory), max_to_keep=2)
    saved = [manager.save() for _ in range(3)]
    mine = Path(top, f"mine_{resolver.task_type}{resolver.task_id}.keras")
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(mine)
    return {
        "chief": strategy.is_chief,
        "waited": waited,
        "folder": str(folder),
        "history": history,
        "learning_rate": float(model.optimizer.learning_rate.numpy()),
        "weights": model.get_weights(),
        "trained": [variable.numpy() for variable in model.trainable_variables],
        "asked": folder / "checkpoints",
        "directory": directory,
        "again": strategy.write_path(str(folder / "checkpoints")),
        "kept": [os.path.exists(path + ".index") for path in saved],
        "own_model": mine.exists(),
    }


States = dict[int, list[np.ndarray]]  # at the begin of each epoch


def train_with_backup(
    strategy: tf.distribute.Strategy, folder: str, fail_at: int | None = None, **options: Any
) -> States:
    """Trains until the beginning of an epoch, or to the end, when no backup is left."""
    model = make_model(strategy, 0.01)
    states: States = {}

    def begin(epoch: int, logs: Any) -> None:
        states[epoch] = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
        if epoch == fail_at:
            raise InterruptedError

    notes = keras.callbacks.LambdaCallback(on_epoch_begin=begin)
    with contextlib.suppress(InterruptedError):
        fit(model, [keras.callbacks.BackupAndRestore(folder, **options), notes], epochs=4)
        # Whether the folder exists must not depend on how far the chief is.
        assert not os.path.exists(folder)
    return states


def interrupted(plain: str, double: str) -> list[States]:
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    return [
        train_with_backup(strategy, plain, 1),
        train_with_backup(strategy, plain, 2),
        train_with_backup(strategy, double, 2, double_checkpoint=True),
    ]


def restarted(plain: str, double: str) -> list[States]:
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    return [
        train_with_backup(strategy, plain),
        # Begins while the chief may still be removing what it restored from.
        train_with_backup(strategy, plain, save_freq=1),
        train_with_backup(strategy, double, double_checkpoint=True),
    ]


def backups_that_differ(top: str) -> list[str]:
    """Returns the errors where the workers' folders, or their callbacks, are not the same."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    errors = []
    for shared in (False, True):
        folder = Path(top, "shared" if shared else f"{strategy.cluster_resolver.task_id}")
        if strategy.is_chief:
            folder.mkdir()
            (folder / "training_metadata.json").write_text('{"epoch": 1, "batch": 0}')
        callbacks = [keras.callbacks.BackupAndRestore(folder)]
        try:
            fit(make_model(strategy), callbacks if strategy.is_chief or not shared else [], 1)
        except ValueError as error:
            errors.append(str(error))
    return errors


def beside_workers(top: str) -> dict[str, Any]:
    """Is a worker or an evaluator of a job whose processes all run this program."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    folder = Path(top, resolver.task_type)
    model = make_model(strategy)
    callbacks = keras.callbacks
    fit(
        model,
        [
            callbacks.ModelCheckpoint(folder / "checkpoint.keras"),
            callbacks.TensorBoard(folder / "board"),
            tf_gc.keras.BackupAndRestore(folder / "backup", delete_checkpoint=False),
            callbacks.BackupAndRestore(folder / "kerasbackup", delete_checkpoint=False),
        ],
        epochs=1,
    )
    model.save(folder / "model.keras")
    asked = folder / "checkpoints"
    same = strategy.write_path(asked) == asked
    if resolver.task_type == "evaluator":
        keras.saving.save_model(model, Path(top, "mine.keras"))
        model.evaluate(*data(), callbacks=[callbacks.TensorBoard(Path(top, "mine"))], verbose=0)
    return {
        "replicas": strategy.num_replicas_in_sync,
        "chief": strategy.is_chief,
        "same": same,
        "loss": model.evaluate(*data(), verbose=0),
    }


Report = dict[str, Any]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    """The reports of two workers that wrote to folders of their own, the chief's first."""
    top = str(tmp_path_factory.mktemp("files"))
    configs = cluster.tf_configs(2, chiefs=1)
    return cluster.values(write_all_kinds, top, configs=configs)


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
    first = cluster.values(interrupted, str(plain), str(double))
    latest = double / "latest.weights.h5"
    latest.write_bytes(latest.read_bytes()[:1000])  # the job was killed while it wrote this
    second = cluster.values(restarted, str(plain), str(double))

    # All workers start with what the chief had, also where replicas differ.
    (started, resumed, doubled), _ = first
    for before, after in zip(first, second, strict=True):
        assert [[*states] for states in before] == [[0, 1], [1, 2], [0, 1, 2]]
        assert [[*states] for states in after] == [[2, 3], [0, 1, 2, 3], [1, 2, 3]]
        np.testing.assert_equal(before[1][1], started[1])
        np.testing.assert_equal(after[0][2], resumed[2])
        np.testing.assert_equal(after[2][1], doubled[1])


def test_workers_that_see_different_backups_all_say_so(tmp_path: Path) -> None:
    for errors in cluster.values(backups_that_differ, str(tmp_path)):
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
        beside_workers, str(tmp_path), configs=configs_with_evaluator(False)
    )
    reports = [outcome.value for outcome in (*workers, evaluator)]
    assert [report["replicas"] for report in reports] == [2, 2, 1]
    assert [report["chief"] for report in reports] == [True, False, False]
    assert [report["same"] for report in reports] == [True, False, False]
    assert reports[0]["loss"] == reports[1]["loss"]
    assert np.isfinite(reports[2]["loss"]).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "mine.keras", "worker"]
    assert list((tmp_path / "mine" / "validation").iterdir())
    warning = "this process is an evaluator, and only the chief's files"
    assert [outcome.log.count(warning) for outcome in (*workers, evaluator)] == [0, 0, 1]
    assert str(tmp_path / "evaluator") in evaluator.log


@matrix
def test_an_evaluator_needs_no_workers_and_no_port(tmp_path: Path) -> None:
    *_, config = configs_with_evaluator(True)
    address = json.loads(config)["cluster"]["evaluator"][0]
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        (report,) = cluster.values(beside_workers, str(tmp_path), configs=[config], devices=2)
    assert report["replicas"] == 2
