"""The workload: the user's model, and a batch to measure it with."""

import dataclasses
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf


class UsageError(Exception):
    """The user's model cannot be planned for; the message says why, and what would do."""


@dataclasses.dataclass(frozen=True)
class Workload:
    """A built and compiled Keras model; `forward` is its loss on a batch, in training."""

    model: Any
    forward: Callable[[], tf.Tensor]


def load_function(text: str, flag: str) -> Callable[..., Any]:
    """Returns the function that `FILE.py:FUNCTION` names."""
    name, colon, function = text.rpartition(":")
    path = Path(name)
    if not colon or path.suffix != ".py":
        raise UsageError(f"{flag} is like model.py:make_model, got {text!r}")
    if not path.is_file():
        raise UsageError(f"{flag}: there is no file {name}")
    # As `python FILE.py` does, so that the file finds its neighbours.
    sys.path.insert(0, str(path.parent.resolve()))
    module = runpy.run_path(name)
    if not callable(module.get(function)):
        raise UsageError(f"{flag}: {name} has no function {function!r}")
    return module[function]


def make_workload(
    make_model: Callable[[], Any], batch_size: int, make_batch: Callable[[int], Any] | None = None
) -> Workload:
    """Makes the model and a batch, random and without labels if `make_batch` is `None`.

    Without labels the loss is the mean of the squared outputs.
    """
    model = make_model()
    if not hasattr(type(model), "compute_loss"):
        raise UsageError(f"make_model must return a Keras model, got {type(model).__name__}")
    compiled = bool(model.compiled)
    if not compiled:
        model.compile(optimizer="sgd")
    if make_batch is None:
        x, y = _random_inputs(model, batch_size), None
    else:
        batch = make_batch(batch_size)
        if not isinstance(batch, tuple) or len(batch) != 2:
            raise UsageError(f"make_batch must return a tuple (x, y), got {type(batch).__name__}")
        if not compiled or model.loss is None:
            raise UsageError("with --batch, make_model must compile its model with a loss")
        x, y = tf.nest.map_structure(tf.convert_to_tensor, batch)

    def forward() -> tf.Tensor:
        outputs = model(x, training=True)
        if make_batch is not None:
            return model.compute_loss(x=x, y=y, y_pred=outputs)
        flat = [tf.cast(output, tf.float32) for output in tf.nest.flatten(outputs)]
        return tf.add_n([tf.reduce_mean(output**2) for output in flat])

    if not getattr(model, "inputs", None):
        forward()  # builds the layers that are not built
    if not model.trainable_variables:
        raise UsageError("the model has no trainable weights: there are no gradients to send")
    model.optimizer.build(model.trainable_variables)
    return Workload(model, forward)


def _random_inputs(model: Any, batch_size: int) -> Any:
    inputs = getattr(model, "inputs", None)
    if not inputs:
        raise UsageError(
            "the model does not say which inputs it takes: begin it with keras.Input, or give "
            "--batch FILE.py:FUNCTION, which returns (x, y)"
        )
    # Integers are below the size of every Embedding; without any, 0 and 1.
    words = min((layer.input_dim for layer in _embeddings(model)), default=2)

    def random(spec: Any) -> tf.Tensor:
        shape, dtype = (batch_size, *spec.shape[1:]), tf.as_dtype(spec.dtype)
        if None in shape or not (dtype.is_floating or dtype.is_integer):
            raise UsageError(
                f"input {spec.name!r} is of {dtype.name} and has the shape {tuple(spec.shape)}: "
                "random inputs are floats or integers of which only the first dimension, the "
                "batch, is unknown. For others give --batch"
            )
        if dtype.is_floating:
            return tf.cast(tf.random.stateless_normal(shape, seed=(1, 2)), dtype)
        return tf.cast(tf.random.stateless_uniform(shape, (1, 2), 0, words, tf.int32), dtype)

    # A functional model has its inputs as a tensor, a list or a dict; others have one.
    return tf.nest.map_structure(random, inputs[0] if len(inputs) == 1 else model.input)


def _embeddings(model: Any) -> Iterator[Any]:
    """Yields the layers that look up rows, nested ones too."""
    for layer in model.layers:
        if hasattr(layer, "input_dim") and hasattr(layer, "output_dim"):
            yield layer
        if hasattr(layer, "layers"):
            yield from _embeddings(layer)
