"""Workers that save, log and go on from backups; each reports what it did."""

import contextlib
import os
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_gc
from tests.keras.stock import compiled, data, normalized_mlp

PLATEAU = 0.1


def make_model(strategy: tf.distribute.Strategy, learning_rate: float = 0.5) -> keras.Model:
    sgd = lambda: keras.optimizers.SGD(learning_rate, momentum=0.9)  # noqa: E731
    return compiled(strategy, lambda: normalized_mlp(False), sgd)


def fit(
    model: keras.Model, callbacks: list[Any], epochs: int, **options: Any
) -> keras.callbacks.History:
    settings = {"batch_size": 32, "shuffle": False, "verbose": 0, **options}
    return model.fit(*data(), epochs=epochs, callbacks=callbacks, **settings)


class Orbax(getattr(keras.callbacks, "OrbaxCheckpoint", keras.callbacks.Callback)):  # type: ignore[misc]
    """Keras' callback with a checkpointer that needs no library; it has the folder for itself."""

    def __init__(self, directory: Path) -> None:
        keras.callbacks.Callback.__init__(self)
        self.directory, self.checkpointer = str(directory), Checkpointer(directory)
        self.save_freq, self._multihost_initialized = "epoch", False

    def set_model(self, model: keras.Model) -> None:
        keras.callbacks.Callback.set_model(self, model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        values = [variable.numpy() for variable in self.model.variables]
        self.checkpointer.save_checkpointables_async(epoch, values).result()

    def on_train_end(self, logs: Any = None) -> None:
        self.checkpointer.close()


class Checkpointer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save_checkpointables_async(self, step: int, values: list[np.ndarray]) -> Future[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        np.savez(self.folder / str(step), *values)
        done: Future[None] = Future()
        done.set_result(None)
        return done

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
        "history": history.history,
        "learning_rate": float(model.optimizer.learning_rate.numpy()),
        "weights": model.get_weights(),
        "trained": [variable.numpy() for variable in model.trainable_variables],
        "asked": folder / "checkpoints",
        "directory": directory,
        "again": strategy.write_path(str(folder / "checkpoints")),
        "kept": [os.path.exists(path + ".index") for path in saved],
        "own_model": mine.exists(),
    }


def state(model: keras.Model) -> list[np.ndarray]:
    return [v.numpy() for v in (*model.variables, *model.optimizer.variables)]


def train_with_backup(
    strategy: tf.distribute.Strategy, folder: str, fail_at: int | None, **options: Any
) -> dict[str, Any]:
    """Trains until the beginning of an epoch; returns with what epochs begin, and the end."""
    model = make_model(strategy, 0.01)
    states: dict[int, list[np.ndarray]] = {}

    def begin(epoch: int, logs: Any) -> None:
        states[epoch] = state(model)
        if epoch == fail_at:
            raise InterruptedError

    notes = keras.callbacks.LambdaCallback(on_epoch_begin=begin)
    ended = False
    with contextlib.suppress(InterruptedError):
        fit(model, [keras.callbacks.BackupAndRestore(folder, **options), notes], epochs=4)
        ended = True
    # Whether the folder exists must not depend on how far the chief is.
    left = os.path.exists(folder)
    epoch, *_ = states
    first, second, *_ = states.values()
    return {
        "epoch": epoch,
        "start": first,
        "second": second,
        "end": state(model),
        "ended": ended,
        "left": left,
    }


def interrupted(plain: str, double: str) -> list[dict[str, Any]]:
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    return [
        train_with_backup(strategy, plain, 1),
        train_with_backup(strategy, plain, 2),
        train_with_backup(strategy, double, 2, double_checkpoint=True),
    ]


def restarted(plain: str, double: str) -> list[dict[str, Any]]:
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    return [
        train_with_backup(strategy, plain, None),
        # Begins while the chief may still be removing what it restored from.
        train_with_backup(strategy, plain, None, save_freq=1),
        train_with_backup(strategy, double, None, double_checkpoint=True),
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
