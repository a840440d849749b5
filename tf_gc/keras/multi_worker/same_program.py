"""In `fit`, workers check that they train the same weights in the same way.

A worker that does anything else would leave the others in a step in which it takes no part, or end
all of them by an error of TensorFlow about shapes.
"""

import functools
import math
from typing import Any

import keras

from tf_gc.keras.strategy import workers_of


def install() -> None:
    """Hooks into Keras' callbacks, which `fit` calls; further calls change nothing."""
    callbacks = keras.callbacks.CallbackList
    if hasattr(callbacks.on_epoch_end, "hooked_by_tf_gc"):
        return
    keras_train_begin, keras_epoch_end = callbacks.on_train_begin, callbacks.on_epoch_end

    @functools.wraps(keras_train_begin)
    def on_train_begin(self: Any, logs: Any = None) -> Any:
        workers = workers_of(getattr(self, "model", None))
        if workers.count > 1:
            workers.meet(_describe(self.model, self.params))
        return keras_train_begin(self, logs)

    @functools.wraps(keras_epoch_end)
    def on_epoch_end(self: Any, epoch: int, logs: Any = None) -> Any:
        # Another worker may evaluate now.
        workers_of(getattr(self, "model", None)).meet(f"ends epoch {epoch + 1} of fit")
        return keras_epoch_end(self, epoch, logs)

    on_epoch_end.hooked_by_tf_gc = True  # type: ignore[attr-defined]
    callbacks.on_train_begin, callbacks.on_epoch_end = on_train_begin, on_epoch_end


def _describe(model: Any, params: Any) -> str:
    weights = [(weight.dtype, tuple(weight.shape)) for weight in model.trainable_variables]
    elements = sum(math.prod(shape) for _, shape in weights)
    return (
        f"begins fit, epochs={(params or {}).get('epochs')}, {type(model.optimizer).__name__}, "
        f"{len(weights)} weights to train with {elements:,} elements: "
        + ", ".join(f"{dtype} {shape}" for dtype, shape in weights)
    )
