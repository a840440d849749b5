"""Under a strategy of several workers, only the chief's files are kept.

All workers run the same program, so each of them would write a model, a log or a backup to the same
path. The workers other than the chief cannot just skip saving, because reading a variable may be a
collective. So they save in full, to files of their own that are thrown away, and their callbacks
keep files in a temporary directory. Where workers read what the chief wrote, they wait for the
chief.
"""

import functools
import hashlib
import inspect
import os
import pathlib
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar, runtime_checkable

import keras
import numpy as np
import tensorflow as tf

PathT = TypeVar("PathT", str, os.PathLike[str])

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


@runtime_checkable
class SharesFiles(Protocol):
    """A strategy whose workers see the same files; `extended` has `gather_from_hosts`."""

    extended: Any

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes the files of the job."""

    def write_path(self, path: PathT) -> PathT:
        """Returns `path` on the chief, and a temporary path on all other workers."""


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


def private_path(path: PathT) -> PathT:
    """Returns a path with the same name that belongs to this process, in an existing directory.

    The same path always gets the same private path. Its files are removed when the process ends.
    """
    private = _mirror(path, "written")
    os.makedirs(os.path.dirname(private), exist_ok=True)
    same_type: Any = private if isinstance(path, str) else pathlib.Path(private)
    return same_type


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


@functools.cache
def _root() -> str:
    folder = tempfile.mkdtemp(prefix="tf_gc_")
    weakref.finalize(_root, shutil.rmtree, folder, ignore_errors=True)
    return folder


def _mirror(path: str | os.PathLike[str], area: str) -> str:
    """Returns where `path`, local or a URL, lies below this process's temporary directory."""
    text = os.fspath(path)
    if _is_below(text, _root()):
        return text
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = "", os.path.abspath(text)
    private = os.path.join(_root(), area, scheme, os.path.normpath("/" + rest).lstrip("/"))
    return private + "/" if text.endswith("/") else private


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _writes_on_chief(callback: Any) -> bool:
    """Whether a callback itself sees to it that only the chief writes."""
    return getattr(callback, "writes_on_chief", False)


def sharing(model: Any) -> SharesFiles | None:
    """Returns a model's strategy if that has several workers that share files, else `None`."""
    strategy = getattr(model, "distribute_strategy", None)
    several = isinstance(strategy, SharesFiles) and strategy.extended.several_hosts
    return strategy if several else None


def _save_in_private(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def save(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = sharing(self)
        if strategy is None or strategy.is_chief or not isinstance(filepath, str | os.PathLike):
            return stock(self, filepath, *args, **kwargs)
        path = os.fspath(filepath)
        if _is_below(path, os.path.join(_root(), "written")):
            return stock(self, filepath, *args, **kwargs)
        # Removed at once: a temporary disk may be too small for all checkpoints of a job.
        with tempfile.TemporaryDirectory(dir=_root()) as folder:
            name = os.path.basename(path.rstrip("/"))
            return stock(self, os.path.join(folder, name), *args, **kwargs)

    save.hooked_by_tf_gc = True  # type: ignore[attr-defined]
    return save


def _redirect_before(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def set_model(self: Any, model: Any) -> Any:
        strategy = sharing(model)
        if strategy is not None and not strategy.is_chief:
            for callback in self.callbacks:
                _redirect(callback)
        return stock(self, model)

    return set_model


def _redirect(callback: Any) -> None:
    """Moves the files of a callback to a directory of this process."""
    for kind, name in _CALLBACKS.items():
        if not isinstance(callback, kind) or _writes_on_chief(callback):
            continue
        root = os.fspath(getattr(callback, name))
        private = _mirror(root, "callbacks")
        if private == root:  # this callback was redirected before
            continue
        os.makedirs(os.path.dirname(private.rstrip("/")), exist_ok=True)
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            _shared_backups[callback] = root
        # Callbacks also have attributes with paths that they made from the public attribute.
        for attribute, value in list(vars(callback).items()):
            if isinstance(value, str | os.PathLike) and _is_below(os.fspath(value), root):
                setattr(callback, attribute, _mirror(value, "callbacks"))
        setattr(callback, name, private)


def _restore_together(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Lets all workers restore the same backup, each from files that no other worker changes.

    BackupAndRestore repairs a broken backup in place, so the workers cannot all read the chief's
    files. The other workers make a copy, and the chief waits until they have it.
    """

    @functools.wraps(stock)
    def on_train_begin(self: Any, logs: Any = None) -> Any:
        strategy = sharing(getattr(self, "model", None))
        if strategy is None:
            return stock(self, logs)
        exchange(strategy, "")  # wait until the chief has finished a save of earlier training
        backups = [c for c in self.callbacks if isinstance(c, keras.callbacks.BackupAndRestore)]
        copies = [callback for callback in backups if callback in _shared_backups]
        folders = [_shared_backups.get(callback, callback.backup_dir) for callback in backups]
        listings = [sorted(_files(folder)) for folder in folders]
        for callback in copies:
            _copy(_shared_backups[callback], callback.backup_dir)
        if exchange(strategy, repr(listings)) > 1:
            raise ValueError(
                "the workers of this job see different backups of BackupAndRestore. Give all of "
                "them the same callbacks, and a backup_dir on a file system that they share; "
                f"this one sees (name, bytes): {listings}"
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
        strategy = sharing(getattr(self, "model", None))
        if strategy is not None:
            exchange(strategy, "")
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


def exchange(strategy: SharesFiles, text: str) -> int:
    """Waits for all workers, and returns how many different texts they passed."""
    digest = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.int64)
    rows = strategy.extended.gather_from_hosts(tf.constant(digest[None])).numpy()
    return len(np.unique(rows, axis=0))
