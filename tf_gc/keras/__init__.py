"""The hooks by which tf_gc works with Keras, and callbacks for users."""

from tf_gc.keras.backup import BackupAndRestore

__all__ = ["BackupAndRestore"]
