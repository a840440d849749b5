"""The Keras of a test: Keras 3, and in tests that are marked with `flavours` also tf_keras.

Such tests, and what they use, name this `keras` instead of importing one, and nothing that only one
of the two has.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import keras as keras3
import tensorflow as tf


class _Keras:
    """Has the names of the Keras that is in use."""

    module: ModuleType = keras3

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


keras: Any = _Keras()


def use(name: str) -> Iterator[None]:
    """Makes `keras` the package of that name, until the generator goes on."""
    _Keras.module = importlib.import_module(name)
    yield
    _Keras.module = keras3


def tf_variable(variable: Any) -> tf.Variable:
    """Returns the `tf.Variable` of a variable of either Keras."""
    return variable.value if isinstance(variable, keras3.Variable) else variable
