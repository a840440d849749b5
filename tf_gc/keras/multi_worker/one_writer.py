"""Workers train the same weights in the same way, and only the chief's files are kept.

Reading a variable may be a collective, so no worker skips saving: those other than the chief save
to temporary files that are removed at once, and their callbacks write to a temporary directory.
Before workers read a file that the chief writes, they wait for the chief.

An evaluator is no worker, but may run the same program. Its models and its files of `fit` are
treated in the same way, and a warning says so. Files that callbacks write in its `evaluate` and
`predict` are kept: such results are the purpose of it.
"""

import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from tf_gc.cluster.workers import Workers
from tf_gc.keras.hook import Method, hook
from tf_gc.keras.keras3.backup import BackupAndRestore
from tf_gc.keras.multi_worker import private_files
from tf_gc.keras.strategy import workers_of

# Callbacks that write files, each with its public attribute of their path.
_CALLBACKS = {
    keras.callbacks.BackupAndRestore: "backup_dir",
    keras.callbacks.CSVLogger: "filename",
    keras.callbacks.ModelCheckpoint: "filepath",
    keras.callbacks.TensorBoard: "log_dir",
}
if hasattr(keras.callbacks, "OrbaxCheckpoint"):  # in newer versions of Keras
    _CALLBACKS[keras.callbacks.OrbaxCheckpoint] = "directory"

# For each BackupAndRestore that was redirected, the backup directory that it was made with.
_shared_backups = weakref.WeakKeyDictionary[Any, str]()


def install() -> None:
    """Hooks into Keras' models and callbacks."""
    for name in ("save", "save_weights", "export"):  # which write to `filepath`
        hook(keras.Model, name, _save_in_private)
    hook(keras.callbacks.CallbackList, "set_model", _redirect_before)
    hook(keras.callbacks.CallbackList, "on_train_begin", _begin_together)
    hook(keras.callbacks.CallbackList, "on_epoch_end", _end_epoch_together)
    hook(keras.callbacks.CallbackList, "on_train_end", _end_together)


def _save_in_private(
    keras_save: Method, model: Any, filepath: Any, *args: Any, **kwargs: Any
) -> Any:
    workers = workers_of(model)
    path = os.fspath(filepath) if isinstance(filepath, str | os.PathLike) else None
    if workers.is_chief or path is None or private_files.is_private(path):
        return keras_save(model, filepath, *args, **kwargs)
    if workers.is_evaluator and not private_files.is_below(path, private_files.root()):
        _warn_that_it_is_not_kept(path)
    # Removed at once: a temporary disk may be too small for all checkpoints of a job.
    with tempfile.TemporaryDirectory(dir=private_files.root()) as folder:
        name = os.path.basename(path.rstrip("/"))
        return keras_save(model, os.path.join(folder, name), *args, **kwargs)


def _redirect_before(keras_set_model: Method, callbacks: Any, model: Any) -> Any:
    workers = workers_of(model)
    # Keras adds a History to the callbacks of `fit`.
    trains = any(isinstance(each, keras.callbacks.History) for each in callbacks.callbacks)
    if not workers.is_chief and (trains or not workers.is_evaluator):
        for callback in callbacks.callbacks:
            _redirect(callback, workers.is_evaluator)
    return keras_set_model(callbacks, model)


def _warn_that_it_is_not_kept(path: str) -> None:
    logging.log_first_n(
        logging.WARNING,
        "tf_gc: this process is an evaluator, and only the chief's files are kept: %s is "
        "discarded, as are other models that it saves and files of fit()'s callbacks. "
        "keras.saving.save_model keeps a model.",
        1,
        path,
    )


def _redirect(callback: Any, is_evaluator: bool) -> None:
    """Moves the files of a callback to a directory of this process."""
    for kind, name in _CALLBACKS.items():
        if not isinstance(callback, kind) or isinstance(callback, BackupAndRestore):
            continue  # tf_gc's own one writes on the chief only
        root = os.fspath(getattr(callback, name))
        private = private_files.mirror(root, "callbacks")
        if private == root:  # this callback was redirected before
            continue
        if is_evaluator:
            _warn_that_it_is_not_kept(root)
        os.makedirs(os.path.dirname(private.rstrip("/")), exist_ok=True)
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            _shared_backups[callback] = root
        # Callbacks also have attributes with paths that they made from the public attribute.
        for attribute, value in list(vars(callback).items()):
            is_path = isinstance(value, str | os.PathLike)
            if is_path and private_files.is_below(os.fspath(value), root):
                setattr(callback, attribute, private_files.mirror(value, "callbacks"))
        setattr(callback, name, private)
        if name == "directory":  # Orbax' checkpointer was made for the chief's one
            callback.checkpointer.close()
            callback.checkpointer = _WritesNothing()


class _WritesNothing:
    """A checkpointer of Orbax, and a future of what it saves, that does nothing."""

    def __getattr__(self, name: str) -> Method:
        return lambda *args, **kwargs: self


def _begin_together(keras_train_begin: Method, callbacks: Any, logs: Any = None) -> Any:
    """Lets all workers train the same, from the same backup, which no other worker changes.

    Keras' BackupAndRestore repairs a broken backup in place, so the other workers make a copy of
    the chief's files, and the chief waits until they have it.
    """
    workers = _workers_of(callbacks)
    if workers.count == 1:
        return keras_train_begin(callbacks, logs)
    # Then the chief has finished saves of earlier training, too.
    workers.meet(_describe(callbacks.model, callbacks.params))
    backups = [c for c in callbacks.callbacks if isinstance(c, keras.callbacks.BackupAndRestore)]
    shared = {c.backup_dir: _shared_backups.get(c, c.backup_dir) for c in backups}
    listings = [sorted(_files(folder)) for folder in shared.values()]
    copies = {mine: source for mine, source in shared.items() if mine != source}
    for mine, source in copies.items():
        _copy(source, mine)
    workers.meet(
        f"sees the files (name, bytes) {listings}",
        error="the workers of this job see different backups of BackupAndRestore; give all of "
        "them the same callbacks, and a backup_dir on a file system that they share",
    )
    result = keras_train_begin(callbacks, logs)
    for mine in copies:
        shutil.rmtree(mine, ignore_errors=True)
    return result


def _workers_of(callbacks: Any) -> Workers:
    return workers_of(getattr(callbacks, "model", None))


def _describe(model: Any, params: Any) -> str:
    weights = [(weight.dtype, tuple(weight.shape)) for weight in model.trainable_variables]
    elements = sum(math.prod(shape) for _, shape in weights)
    return (
        f"begins fit, epochs={(params or {}).get('epochs')}, {type(model.optimizer).__name__}, "
        f"{len(weights)} weights to train with {elements:,} elements: "
        + ", ".join(f"{dtype} {shape}" for dtype, shape in weights)
    )


def _end_epoch_together(keras_end: Method, callbacks: Any, epoch: int, logs: Any = None) -> Any:
    # Another worker may evaluate now.
    _workers_of(callbacks).meet(f"ends epoch {epoch + 1} of fit")
    return keras_end(callbacks, epoch, logs)


def _end_together(keras_train_end: Method, callbacks: Any, logs: Any = None) -> Any:
    """Lets `fit` return only when the chief has written, and removed, all its files."""
    result = keras_train_end(callbacks, logs)
    _workers_of(callbacks).meet("ends fit")
    return result


def _files(folder: str) -> Iterator[tuple[str, int]]:
    for parent, _, names in tf.io.gfile.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            yield os.path.relpath(path, folder), tf.io.gfile.stat(path).length


def _copy(source: str, target: str) -> None:
    shutil.rmtree(target, ignore_errors=True)
    for name, _ in _files(source):
        os.makedirs(os.path.dirname(os.path.join(target, name)), exist_ok=True)
        tf.io.gfile.copy(os.path.join(source, name), os.path.join(target, name))
