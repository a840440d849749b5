"""The adapter for Keras 2, which is the package tf_keras."""

import os
import sys
from typing import Any

from tf_gc.keras.keras2 import optimizer_hook

# By what TensorFlow takes tf_keras for tf.keras.
_LEGACY = ("1", "true", "True")


class Keras2:
    """A `tf_gc.keras.flavour.Flavour`.

    Keras 2 compresses by itself: its optimizers hand gradients to a strategy together with their
    variables. The hook keeps apart what was not sent of different optimizers.
    """

    def install(self, several_workers: bool) -> None:
        del several_workers  # Keras 2 knows how workers train together
        # To import it takes seconds.
        if "tf_keras" in sys.modules or os.environ.get("TF_USE_LEGACY_KERAS") in _LEGACY:
            optimizer_hook.install()

    def is_variable(self, value: Any) -> bool:
        del value  # they are those of TensorFlow
        return False

    def tf_variable(self, variable: Any) -> Any:
        return variable
