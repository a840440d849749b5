"""A directory of backups that has its last complete backup even if the writer is killed.

Each backup is a folder with a number as its name. A list names the complete ones, the newest first.
It is replaced in one step when another one is complete; only then are older ones removed. A folder
that is not in the list was left behind by a writer that was killed.
"""

import json
import os

import tensorflow as tf

from tf_gc.cluster.workers import Workers
from tf_gc.launch.tasks import MESSAGES, tell_launcher

_LIST = "complete.json"

# The directories with which this process has ended a training.
_ended: set[str] = set()


class BackupFiles:
    """The backups in a directory, local or a URL, that has nothing else and need not exist yet."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def forget(self, workers: Workers) -> None:
        """Lets a further training of this process begin without what the last one has left."""
        if self._directory in _ended:
            if workers.is_chief:
                self.remove()
            workers.meet("begins another training with the same backup_dir")

    def can_wait(self) -> bool:
        """Whether the launcher removes the directory when the job has ended well.

        Then a program that fails after its training starts again without it. Of several trainings
        with one directory it could not tell which one the backups are of.
        """
        return MESSAGES in os.environ and self._directory not in _ended

    def end(self, wait: bool, writes: bool) -> None:
        """Ends a training; if this process `writes`, removes the directory, or has it removed."""
        _ended.add(self._directory)
        if writes and wait:
            is_url = "://" in self._directory
            tell_launcher(self._directory if is_url else os.path.abspath(self._directory))
        elif writes:
            self.remove()

    def complete(self) -> list[str]:
        return [self._path(name) for name in self._names()]

    def begin(self) -> str:
        """Makes the folder of a new backup, which does not count until it is committed."""
        taken = [int(name) for name in self._entries() if name.isdecimal()]
        folder = self._path(str(max(taken, default=0) + 1))
        tf.io.gfile.makedirs(folder)
        return folder

    def commit(self, folder: str, keep: int) -> None:
        """Makes a folder, with all files closed, the newest backup; removes all but `keep`."""
        for name in tf.io.gfile.listdir(folder):
            _flush(os.path.join(folder, name))
        _flush(folder)
        kept = [os.path.basename(folder), *self._names()][:keep]
        new = self._path(_LIST + ".new")
        with tf.io.gfile.GFile(new, "w") as file:
            file.write(json.dumps(kept))
        _flush(new)
        tf.io.gfile.rename(new, self._path(_LIST), overwrite=True)
        _flush(self._directory)
        for name in self._entries():
            if name.isdecimal() and name not in kept:
                tf.io.gfile.rmtree(self._path(name))

    def remove(self) -> None:
        """Removes the directory. As soon as this begins, no backup counts any more."""
        if tf.io.gfile.exists(self._path(_LIST)):
            tf.io.gfile.remove(self._path(_LIST))
            _flush(self._directory)
        if tf.io.gfile.exists(self._directory):
            tf.io.gfile.rmtree(self._directory)

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _entries(self) -> list[str]:
        if not tf.io.gfile.exists(self._directory):
            return []
        return [name.rstrip("/") for name in tf.io.gfile.listdir(self._directory)]

    def _names(self) -> list[str]:
        if not tf.io.gfile.exists(self._path(_LIST)):
            return []
        with tf.io.gfile.GFile(self._path(_LIST)) as file:
            return json.loads(file.read())


def _flush(path: str) -> None:
    """Waits until a file or directory is on the disk; object stores need no such wait."""
    if "://" in path:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
