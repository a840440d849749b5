"""Keras 2, the package tf_keras: the hook of its optimizers, and its backups.

Keras 2 compresses by itself: its optimizers hand gradients to a strategy together with their
variables. The hook keeps the residuals of different optimizers apart.
"""

import importlib
import sys
from typing import Any

import tensorflow as tf

from tf_gc._compat.lookup import Attributes, owner_of, require
from tf_gc.gradients import sum_gradients
from tf_gc.keras.backup_files import BackupFiles
from tf_gc.keras.hook import Method, hook
from tf_gc.keras.scope import warn_of_forgotten_scope
from tf_gc.keras.strategy import strategy_of, strategy_of_replica, workers_of
from tf_gc.state.stream import stream_of

_STREAMS = "to keep apart what was not sent of different optimizers"
_NEW = Attributes("tf_keras.optimizers.Optimizer", {"aggregate_gradients": _STREAMS})
_LEGACY = Attributes("tf_keras.optimizers.legacy.Optimizer", {"_aggregate_gradients": _STREAMS})
ATTRIBUTES = (_NEW, _LEGACY)

# The methods of a callback that tf_keras calls, besides `set_model`.
METHODS = (
    *("on_train_begin", "on_epoch_begin", "on_train_batch_begin", "on_train_batch_end"),
    *("on_epoch_end", "on_train_end", "_implements_train_batch_hooks"),
)


def install() -> None:
    """Hooks into the optimizers, or raises ImportError if they sum gradients in an unknown way."""
    require(*ATTRIBUTES)
    hook(owner_of(_NEW), "aggregate_gradients", _sum)
    hook(owner_of(_LEGACY), "_aggregate_gradients", _sum)


def _sum(keras_sum: Method, optimizer: Any, grads_and_vars: Any) -> Any:
    pairs = list(grads_and_vars)
    if strategy_of_replica() is None or all(gradient is None for gradient, _ in pairs):
        warn_of_forgotten_scope()
        return keras_sum(optimizer, pairs)
    name = getattr(optimizer, "name", type(optimizer).__name__)
    sums = sum_gradients(pairs, stream_of(optimizer, name))
    return [(total, variable) for total, (_, variable) in zip(sums, pairs, strict=True)]


class OfTrainBatches:
    """Mixin of callbacks, which tf_keras asks which batches concern them: those of training."""

    _supports_tf_logs = True  # without which tf_keras refuses them under parameter servers

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return False

    _implements_predict_batch_hooks = _implements_test_batch_hooks


def is_model(model: Any) -> bool:
    """Returns whether a model is one of tf_keras."""
    keras2 = sys.modules.get("tf_keras")  # whoever has such a model has imported it
    return keras2 is not None and isinstance(model, keras2.Model)


def backup_callback(directory: str, save_freq: str | int, deletes: bool) -> Any:
    """Returns `tf_keras.callbacks.BackupAndRestore`, with the residuals in its checkpoints."""
    files = BackupFiles(directory)
    stock = importlib.import_module("tf_keras").callbacks.BackupAndRestore

    class Backup(stock):  # type: ignore[misc, valid-type]
        def on_train_begin(self, logs: Any = None) -> None:
            files.forget(workers_of(self.model))
            self._wait = files.can_wait()
            self.delete_checkpoint = deletes and not self._wait
            if strategy := strategy_of(self.model):
                # Checkpoints hold what a model has. The residuals themselves would become weights.
                state = strategy.compression_state
                self.model._tf_gc_backup = tf.train.Checkpoint(compression_state=state)
            super().on_train_begin(logs)

        def on_train_end(self, logs: Any = None) -> None:
            super().on_train_end(logs)
            if deletes:
                files.end(self._wait, self.model.distribute_strategy.extended.should_checkpoint)
            if hasattr(self.model, "_tf_gc_backup"):
                del self.model._tf_gc_backup

    return Backup(directory, save_freq, deletes)
