"""What connects tf_gc to Keras, and its callbacks."""

from tf_gc.keras.backup import BackupAndRestore

__all__ = ["BackupAndRestore"]
