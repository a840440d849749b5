"""The adapter for Keras 3 on the TensorFlow backend."""

from typing import Any

import keras

from tf_gc.keras.keras3 import (
    asynchronous,
    epoch_length,
    first_batch,
    layer_state_hook,
    optimizer_hook,
    private,
    variables,
)
from tf_gc.keras.multi_worker import one_writer, same_program


class Keras3:
    """A `tf_gc.keras.flavour.Flavour`."""

    def install(self, several_workers: bool) -> None:
        private.check_version()
        optimizer_hook.install()
        layer_state_hook.install()
        first_batch.install()
        asynchronous.install()
        if several_workers:
            epoch_length.install()
            one_writer.install()
            same_program.install()

    def is_variable(self, value: Any) -> bool:
        return isinstance(value, keras.Variable)

    def tf_variable(self, variable: Any) -> Any:
        return variables.tf_variable(variable)
