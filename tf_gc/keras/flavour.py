"""The flavours of Keras that tf_gc knows, each behind an adapter."""

from typing import Any, Protocol

from tf_gc.keras.keras2 import Keras2
from tf_gc.keras.keras3 import Keras3


class Flavour(Protocol):
    """What tf_gc needs of a Keras; everything that knows its inside is in the adapter's folder."""

    def install(self, several_workers: bool) -> None:
        """Hooks into this Keras; further calls change nothing.

        The hooks act under strategies that extend `KerasStrategy`, and call those.

        Args:
          several_workers: whether to install the hooks that let the workers of a job agree, too.

        Raises:
          ImportError: if the installed Keras does something in a way that tf_gc does not know.
            Otherwise training would go on without compression, or replicas would drift apart.
        """

    def is_variable(self, value: Any) -> bool:
        """Returns whether a value is a variable of this Keras and not one of TensorFlow."""

    def tf_variable(self, variable: Any) -> Any:
        """Returns the `tf.Variable` inside of a variable of this Keras, with its path.

        `tf_gc.gradients.set_path` says the path, which TensorFlow's name need not contain.
        """


FLAVOURS: tuple[Flavour, ...] = (Keras3(), Keras2())


def install(several_workers: bool) -> None:
    """Hooks into every Keras; strategies call it when they are made. See `Flavour.install`."""
    for flavour in FLAVOURS:
        flavour.install(several_workers)


def is_variable(value: Any) -> bool:
    """Returns whether a value is a variable of Keras and not one of TensorFlow."""
    return any(flavour.is_variable(value) for flavour in FLAVOURS)


def tf_variable(variable: Any) -> Any:
    """Returns the `tf.Variable` inside of a variable of Keras, any other value unchanged."""
    for flavour in FLAVOURS:
        if flavour.is_variable(variable):
            return flavour.tf_variable(variable)
    return variable
