"""The part of `tf_gc.keras.BackupAndRestore` for a model of tf_keras."""

import importlib
import sys
from typing import Any

import tensorflow as tf

# The methods that tf_keras calls, besides `set_model`.
METHODS = (
    "on_train_begin",
    "on_epoch_begin",
    "on_train_batch_begin",
    "on_train_batch_end",
    "on_epoch_end",
    "on_train_end",
    "_implements_train_batch_hooks",
)


def is_model(model: Any) -> bool:
    """Returns whether a model is one of tf_keras."""
    keras2 = sys.modules.get("tf_keras")  # whoever has such a model has imported it
    return keras2 is not None and isinstance(model, keras2.Model)


def make_callback(backup_dir: str, save_freq: Any, delete_checkpoint: bool) -> Any:
    """Returns tf_keras' own callback, with the residuals in its checkpoints.

    Args:
      backup_dir: as in `tf_keras.callbacks.BackupAndRestore`.
      save_freq: likewise.
      delete_checkpoint: likewise.
    """
    stock = importlib.import_module("tf_keras").callbacks.BackupAndRestore

    class Backup(stock):  # type: ignore[misc, valid-type]
        def on_train_begin(self, logs: Any = None) -> None:
            state = getattr(self.model.distribute_strategy, "compression_state", None)
            if state is not None:
                # Checkpoints hold what a model has. The residuals themselves would become weights.
                self.model._tf_gc_backup = tf.train.Checkpoint(compression_state=state)
            super().on_train_begin(logs)

        def on_train_end(self, logs: Any = None) -> None:
            super().on_train_end(logs)
            if hasattr(self.model, "_tf_gc_backup"):
                del self.model._tf_gc_backup

    return Backup(backup_dir, save_freq, delete_checkpoint)
