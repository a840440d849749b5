"""What tf_gc needs of Keras 2, each with its purpose, as `tf_gc.keras.keras3.private`."""

from typing import Any

from tf_gc._compat.lookup import Attributes, require, symbol

_STREAMS = "to keep apart what was not sent of different optimizers"

OPTIMIZER = Attributes("tf_keras.optimizers", "Optimizer", {"aggregate_gradients": _STREAMS})
LEGACY_OPTIMIZER = Attributes(
    "tf_keras.optimizers.legacy", "Optimizer", {"_aggregate_gradients": _STREAMS}
)

ATTRIBUTES = (OPTIMIZER, LEGACY_OPTIMIZER)


def optimizer_classes() -> tuple[Any, Any]:
    """Returns the classes of all new and all legacy optimizers, which sum gradients."""
    require(*ATTRIBUTES)
    new, old = (
        symbol(each.module, each.name, "where Keras 2 reduces gradients") for each in ATTRIBUTES
    )
    return new, old
