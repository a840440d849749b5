"""Keras leaves iterators unfinished, of validation data for one, which TensorFlow is slow to end."""

from tests.keras.conftest import unfinished_epochs

__all__ = ["unfinished_epochs"]
