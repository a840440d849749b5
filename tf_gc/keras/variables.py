"""Variables of Keras 3, and those of TensorFlow that hold their values."""

from typing import Any

import keras


def is_variable(value: Any) -> bool:
    """Returns whether a value is a variable of Keras 3; tf_keras has TensorFlow's own."""
    return isinstance(value, keras.Variable)


def tf_variable(variable: Any) -> Any:
    """Returns the `tf.Variable` of a Keras variable, with its path; any other value unchanged."""
    if not is_variable(variable):
        return variable
    variable.value._tf_gc_path = variable.path  # for `path_of`
    return variable.value
