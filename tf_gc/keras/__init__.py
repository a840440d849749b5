"""Callbacks for users, and the adapters by which tf_gc works with Keras."""

from tf_gc.keras.keras3.backup import BackupAndRestore
from tf_gc.keras.keras3.monitor import CompressionMonitor

__all__ = ["BackupAndRestore", "CompressionMonitor"]
