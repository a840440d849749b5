"""BackupAndRestore: backups that include what replicas have not sent yet."""

import os
import warnings
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from tf_gc._compat.lookup import require
from tf_gc.keras import keras2
from tf_gc.keras.backup_files import BackupFiles
from tf_gc.keras.keras3 import private
from tf_gc.keras.keras3.backup_residuals import read_residuals, restore_residuals, write_residuals
from tf_gc.keras.multi_worker.preemption import Preemption
from tf_gc.keras.strategy import workers_of
from tf_gc.params.arguments import POSITIVE, integer

_WEIGHTS, _RESIDUALS = "latest.weights.h5", "residuals.npz"


class BackupAndRestore(keras2.OfTrainBatches, keras.callbacks.BackupAndRestore):
    """`keras.callbacks.BackupAndRestore` that keeps residuals and survives being killed.

    ```python
    model.fit(..., callbacks=[tf_gc.keras.BackupAndRestore("backup")])
    ```

    A backup holds the model, its optimizer, the epoch and, for each variable, the sum of its
    residuals over the replicas, in float32, of which restoring gives each replica an equal part,
    whatever their number. The last complete backup is there whenever the job is killed. If the
    model has changed, what fits is restored, and one line of the log says what did not. Backups of
    Keras' callback restore as well.

    Workers give the same directory, on a file system that they share. The chief writes.

    SIGTERM makes `fit` save after the step, stop and return, with `preempted` set and the backup
    kept; another one 5 seconds later ends the process. If one worker gets it, all stop after the
    same step, within about a second. A program that has a handler for SIGTERM keeps it, and may
    call `request_stop` in it. Training goes on from the beginning of the epoch in which the backup
    was made.

    For a model of tf_keras it is `tf_keras.callbacks.BackupAndRestore` with the residuals, and
    knows nothing of SIGTERM.

    Attributes:
      preempted: whether the last `fit` stopped early for SIGTERM or `request_stop`.
    """

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: str | int = "epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
    ) -> None:
        """Initializes the callback.

        Args:
          backup_dir: a directory for the backups only, or a URL of one.
          save_freq: `"epoch"`, a number of batches, or `False` to save at SIGTERM only.
          double_checkpoint: whether to keep the backup before the last one as well, and to
            restore it if the last one cannot be read.
          delete_checkpoint: whether to remove the directory when training has ended.

        Raises:
          ValueError: if `backup_dir` is empty or `save_freq` has another value.
          ImportError: if the installed Keras makes backups in a way that tf_gc does not know.
        """
        require(private.BACKUP, private.RESTORED_MODEL)
        if save_freq != "epoch" and save_freq is not False:
            words = 'save_freq must be "epoch", False or a number of batches from 1'
            save_freq = integer(words, save_freq, allowed=POSITIVE)
        super().__init__(os.fspath(backup_dir), save_freq, double_checkpoint, delete_checkpoint)
        self.preempted = False
        self._files = BackupFiles(self.backup_dir)
        self._preemption = Preemption()
        self._for_keras2 = False

    def request_stop(self) -> None:
        """Asks `fit` to save after this step and stop, as SIGTERM does. For signal handlers.

        If no `fit` is running, the next one stops after its first step. With a model of tf_keras
        it raises NotImplementedError.
        """
        if self._for_keras2:
            raise NotImplementedError(
                "with tf_keras, BackupAndRestore stops no training: set model.stop_training in a "
                "callback, and the end of the epoch is saved"
            )
        self._preemption.request()

    def set_model(self, model: keras.Model) -> None:
        """Sets the model, or raises ValueError if tf_keras, whose it is, has no such backups."""
        if not keras2.is_model(model):
            super().set_model(model)
            return
        if self.double_checkpoint or self.save_freq is False:
            raise ValueError(
                "with tf_keras, BackupAndRestore saves each epoch or every n batches and keeps the "
                f"last backup; got save_freq={self.save_freq!r}, "
                f"double_checkpoint={self.double_checkpoint!r}"
            )
        of_keras2 = keras2.backup_callback(self.backup_dir, self.save_freq, self.delete_checkpoint)
        of_keras2.set_model(model)
        self._for_keras2 = True
        for name in keras2.METHODS:
            setattr(self, name, getattr(of_keras2, name))

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.preempted = False
        self._restore()
        self._preemption.watch(self.model)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._current_epoch = epoch  # Keras' callback has 0 here after a restart

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        due = self.save_freq is not False and self._should_save_on_batch(batch)
        stop = self._preemption.agreed()
        if due or stop:
            self._save_model()
        if stop:
            self._stop()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self.preempted:  # after a restart, this epoch is trained again
            return
        super().on_epoch_end(epoch, logs)
        if self._preemption.agreed(ask_now=True):
            if self.save_freq != "epoch":
                self._save_model()
            self._stop()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._preemption.unwatch()
        if not self.delete_checkpoint or self.preempted:
            return
        if self._removed_later:
            self._current_epoch = self.params["epochs"]
            self._save_model()
        self._files.end(self._removed_later, self._workers.is_chief)

    def _stop(self) -> None:
        self.preempted = True
        self.model.stop_training = True
        logging.warning("tf_gc: asked to stop; saved to %s and stops training", self.backup_dir)

    def _save_model(self) -> None:
        # Reading a variable may be a collective, so all workers read all; only the chief writes.
        writes = self._workers.is_chief
        folder = self._files.begin() if writes else self.backup_dir
        self.model.save_weights(os.path.join(folder, _WEIGHTS))
        path = os.path.join(folder, _RESIDUALS) if writes else None
        write_residuals(self.model, path, epoch=self._current_epoch)
        if writes:
            self._files.commit(folder, keep=2 if self.double_checkpoint else 1)

    def _restore(self) -> None:
        self._workers = workers_of(self.model)
        self._files.forget(self._workers)
        folders = self._files.complete()
        for folder in folders:
            try:
                said = self._restore_from(folder)
                break
            except (OSError, tf.errors.OpError) as error:
                if folder == folders[-1]:
                    raise
                logging.warning("tf_gc: backup %s cannot be read: %s", folder, error)
        else:
            super().on_train_begin()  # a backup of Keras' callback, or none
            folder, said = self.backup_dir, []
            if tf.io.gfile.exists(os.path.join(folder, _WEIGHTS)):
                said = restore_residuals(self.model, [], [])
        can_wait = self._workers.meet(
            f"restored {folder}",
            self._files.can_wait(),
            error=f"the workers of this job restored different backups of {self.backup_dir}; see "
            "the log for what could not be read",
        )
        self._removed_later = bool(can_wait.min())
        if not self._workers.is_chief:
            return
        if (self.model._initial_epoch or 0) >= self.params["epochs"]:
            logging.warning(
                "tf_gc: the backup %s is of the end of this training: nothing is left to train",
                folder,
            )
        if said:
            logging.warning("tf_gc: restored from %s what fits: %s", folder, "; ".join(said))

    def _restore_from(self, folder: str) -> list[str]:
        if not self.model.built:
            raise ValueError(
                "build the model before fit(), for instance by calling it on a batch of data: "
                f"otherwise BackupAndRestore restores no {self.model.name} from {self.backup_dir}"
            )
        entries, layout = read_residuals(os.path.join(folder, _RESIDUALS))
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.model.load_weights(os.path.join(folder, _WEIGHTS), skip_mismatch=True)
        # Keras says by a UserWarning what does not fit; NumPy may warn of other things.
        texts = [str(each.message) for each in caught if each.category is UserWarning]
        said = [" ".join(text.split()) for text in texts]
        self.model._initial_epoch = layout["epoch"]
        return said + restore_residuals(self.model, entries, layout["variables"])
