"""Under a strategy of several workers, only the chief's files are kept.

All workers run the same program, so each of them would write a model, a log or a backup to the same
path. The workers other than the chief cannot just skip saving, because reading a variable may be a
collective. So these workers save in full, to temporary files that are removed at once, and their
callbacks write to a temporary directory. Before workers read a file that the chief writes, they
wait for the chief.

An evaluator is no worker, but may run the same program. Its models and what its `fit` writes are
treated in the same way, and since no chief writes the like of them, a warning says so. What
callbacks write in its `evaluate` and `predict` is kept: such results are what an evaluator is for.
"""

import functools
import inspect
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from tf_gc.keras.multi_worker import private_files
from tf_gc.keras.strategy import workers_of

# Methods of a model that write to `filepath`, and callbacks with their public path attribute.
_SAVES = ("save", "save_weights", "export")
_CALLBACKS = {
    keras.callbacks.BackupAndRestore: "backup_dir",
    keras.callbacks.CSVLogger: "filename",
    keras.callbacks.ModelCheckpoint: "filepath",
    keras.callbacks.TensorBoard: "log_dir",
}
_EVENTS = ("set_model", "on_train_begin", "on_train_end")

# For each BackupAndRestore that was redirected, the backup directory that it was made with.
_shared_backups: "weakref.WeakKeyDictionary[Any, str]" = weakref.WeakKeyDictionary()


def install() -> None:
    """Hooks into Keras' models and callbacks; further calls change nothing.

    Raises:
      ImportError: if the installed Keras saves in a way that tf_gc does not know. Workers would
        then write the same files.
    """
    _check_keras()
    if hasattr(keras.Model.save, "hooked_by_tf_gc"):
        return
    for name in _SAVES:
        setattr(keras.Model, name, _save_in_private(getattr(keras.Model, name)))
    hooks = (_redirect_before, _restore_together, _end_together)
    for name, hook in zip(_EVENTS, hooks, strict=True):
        stock = getattr(keras.callbacks.CallbackList, name)
        setattr(keras.callbacks.CallbackList, name, hook(stock))


def _check_keras() -> None:
    missing = [
        f"Model.{name}(filepath)"
        for name in _SAVES
        if "filepath" not in _parameters(getattr(keras.Model, name, None))
    ]
    missing += [
        f"callbacks.CallbackList.{name}"
        for name in _EVENTS
        if name not in vars(keras.callbacks.CallbackList)
    ]
    missing += [
        f"callbacks.{kind.__name__}.{name}"
        for kind, name in _CALLBACKS.items()
        if name not in _parameters(kind) or getattr(kind("a.keras"), name, None) != "a.keras"
    ]
    if missing:
        raise ImportError(
            f"Keras {keras.__version__} has no {', '.join(missing)}: it writes files in a way that "
            "tf_gc does not know, and the workers of a job would overwrite each other's. See the "
            "README for the versions that work."
        )


def _parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters) if callable(function) else []


def _writes_on_chief(callback: Any) -> bool:
    """Returns whether a callback lets only the chief write by itself."""
    return getattr(callback, "writes_on_chief", False)


def _save_in_private(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def save(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        workers = workers_of(self)
        if workers.is_chief or not isinstance(filepath, str | os.PathLike):
            return stock(self, filepath, *args, **kwargs)
        path = os.fspath(filepath)
        if private_files.is_private(path):
            return stock(self, filepath, *args, **kwargs)
        if workers.is_evaluator and not private_files.is_below(path, private_files.root()):
            _warn_that_it_is_not_kept(path)
        # Removed at once: a temporary disk may be too small for all checkpoints of a job.
        with tempfile.TemporaryDirectory(dir=private_files.root()) as folder:
            name = os.path.basename(path.rstrip("/"))
            return stock(self, os.path.join(folder, name), *args, **kwargs)

    save.hooked_by_tf_gc = True  # type: ignore[attr-defined]
    return save


def _redirect_before(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def set_model(self: Any, model: Any) -> Any:
        workers = workers_of(model)
        if not workers.is_chief and (_trains(self.callbacks) or not workers.is_evaluator):
            for callback in self.callbacks:
                _redirect(callback, workers.is_evaluator)
        return stock(self, model)

    return set_model


def _trains(callbacks: Sequence[Any]) -> bool:
    """Returns whether these are the callbacks of `fit`, to which Keras adds a History."""
    return any(isinstance(callback, keras.callbacks.History) for callback in callbacks)


def _warn_that_it_is_not_kept(path: str) -> None:
    """Warns, once in a process."""
    logging.log_first_n(
        logging.WARNING,
        "tf_gc: this process is an evaluator, and the chief writes the files of the job: what this "
        "one writes to %s is not kept, nor are other models it saves and files of callbacks of "
        "fit(). keras.saving.save_model writes a model of the evaluator's own.",
        1,
        path,
    )


def _redirect(callback: Any, is_evaluator: bool) -> None:
    """Moves the files of a callback to a directory of this process."""
    for kind, name in _CALLBACKS.items():
        if not isinstance(callback, kind) or _writes_on_chief(callback):
            continue
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


def _restore_together(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Lets all workers restore the same backup, each from files that no other worker changes.

    BackupAndRestore repairs a broken backup in place, so the workers cannot all read the chief's
    files. The other workers make a copy, and the chief waits until they have it.
    """

    @functools.wraps(stock)
    def on_train_begin(self: Any, logs: Any = None) -> Any:
        workers = workers_of(getattr(self, "model", None))
        if workers.count == 1:
            return stock(self, logs)
        # All have just met (`same_program`), and the chief has finished saves of earlier training.
        backups = [c for c in self.callbacks if isinstance(c, keras.callbacks.BackupAndRestore)]
        copies = [callback for callback in backups if callback in _shared_backups]
        folders = [_shared_backups.get(callback, callback.backup_dir) for callback in backups]
        listings = [sorted(_files(folder)) for folder in folders]
        for callback in copies:
            _copy(_shared_backups[callback], callback.backup_dir)
        workers.meet(
            f"sees the files (name, bytes) {listings}",
            error="the workers of this job see different backups of BackupAndRestore; give all of "
            "them the same callbacks, and a backup_dir on a file system that they share",
        )
        result = stock(self, logs)
        for callback in copies:
            shutil.rmtree(callback.backup_dir, ignore_errors=True)
        return result

    return on_train_begin


def _end_together(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Lets `fit` return only when the chief has written, and removed, all its files."""

    @functools.wraps(stock)
    def on_train_end(self: Any, logs: Any = None) -> Any:
        result = stock(self, logs)
        workers_of(getattr(self, "model", None)).meet("ends fit")
        return result

    return on_train_end


def _files(folder: str) -> Iterator[tuple[str, int]]:
    """Yields names and sizes of the files in a directory; it may be remote, or not exist."""
    for parent, _, names in tf.io.gfile.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            yield os.path.relpath(path, folder), tf.io.gfile.stat(path).length


def _copy(source: str, target: str) -> None:
    shutil.rmtree(target, ignore_errors=True)
    for name, _ in _files(source):
        os.makedirs(os.path.dirname(os.path.join(target, name)), exist_ok=True)
        tf.io.gfile.copy(os.path.join(source, name), os.path.join(target, name))
