"""What a checkpoint holds of a `compression_state`, without TensorFlow's objects."""

from typing import Any

import numpy as np
import tensorflow as tf

from tf_gc.state.layout import Entry

_ATTRIBUTES = "/.ATTRIBUTES/"


def values_in(path: Any, owner: str = "compression") -> dict[str, np.ndarray]:
    """Returns the values by slot and key; `owner` is what the state is called."""
    reader = tf.train.load_checkpoint(path)
    values = {}
    for name in reader.get_variable_to_shape_map():
        if name.startswith(owner + _ATTRIBUTES):
            entry = Entry.named(name.split(_ATTRIBUTES)[1].replace(".S", "/"), None)
            if entry.slot != "version":
                values[f"{entry.slot} {entry.key}"] = reader.get_tensor(name)
    return values
