"""Variables of Keras 3, and those of TensorFlow inside of them."""

from typing import Any

import keras

from tf_gc.gradients import set_path


def tf_variable(variable: Any) -> Any:
    """Returns the `tf.Variable` of a Keras variable, with its path; any other value unchanged."""
    if not isinstance(variable, keras.Variable):
        return variable
    set_path(variable.value, variable.path)
    return variable.value
