"""Variables of Keras 3, and TensorFlow's variables in them; tf_keras has TensorFlow's own."""

from typing import Any

import keras

from tf_gc.gradients import set_path


def is_variable(value: Any) -> bool:
    """Returns whether a value is a variable of Keras and not one of TensorFlow."""
    return isinstance(value, keras.Variable)


def tf_variable(variable: Any) -> Any:
    """Returns the `tf.Variable` of a Keras variable, with its path; any other value unchanged."""
    if not is_variable(variable):
        return variable
    set_path(variable.value, variable.path)
    return variable.value
