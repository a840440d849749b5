"""The user's model, and a batch to measure it with."""

import contextlib
import dataclasses
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf


class UsageError(Exception):
    """What the user gave cannot be planned for; the message says why and what would do.

    If code of the user failed, its exception is the cause.
    """


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model with what a step of it needs.

    Attributes:
      model: a built and compiled Keras model.
      x: what the model is called with.
      loss: gives the scalar loss of the model's outputs.
    """

    model: Any
    x: Any
    loss: Callable[[Any], tf.Tensor]

    def forward(self) -> tf.Tensor:
        """Returns the loss of one forward pass in training."""
        return self.loss(self.model(self.x, training=True))


def load_function(text: str, flag: str) -> Callable[..., Any]:
    """Returns the function that `FILE.py:FUNCTION` names.

    Raises:
      UsageError: if there is no such file or function, or the file raises an error.
    """
    name, colon, function = text.rpartition(":")
    path = Path(name)
    if not colon or not function.isidentifier() or path.suffix != ".py":
        raise UsageError(f"{flag} is like model.py:make_model, got {text!r}")
    if not path.is_file():
        raise UsageError(f"{flag}: there is no file {name}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # As `python FILE.py` does, so that the file finds its neighbours.
    sys.path.insert(0, str(path.parent.resolve()))
    with _users_code(f"{flag}: {name}"):
        spec.loader.exec_module(module)
    found = getattr(module, function, None)
    if not inspect.isroutine(found):
        functions = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise UsageError(f"{flag}: {name} has no function {function!r}, only {functions}")
    return found


def make_subject(
    make_model: Callable[[], Any],
    batch_size: int,
    make_batch: Callable[[int], Any] | None = None,
) -> Subject:
    """Makes the model and a batch.

    Args:
      make_model: returns a Keras model. Its optimizer is measured, or SGD if it is not compiled.
      batch_size: how many samples a worker has.
      make_batch: given the batch size, returns (x, y), arrays or tensors; the model then has to be
        compiled with a loss. `None` makes random inputs after the model's, and takes the mean of
        the squared outputs as the loss.

    Raises:
      UsageError: if a function or the model raises an error, what is returned is something else,
        the model has no trainable weights, or its inputs are not known.
    """
    with _users_code("make_model"):
        model = make_model()
    wanted = ("trainable_variables", "compile", "compute_loss", "layers")
    if not callable(model) or not all(hasattr(type(model), name) for name in wanted):
        raise UsageError(f"make_model must return a Keras model, got {type(model).__name__}")
    compiled = bool(model.compiled)
    if not compiled:
        model.compile(optimizer="sgd")
    if make_batch is None:
        subject = Subject(model, _random_inputs(model, batch_size), _mean_square)
    else:
        with _users_code("make_batch"):
            batch = make_batch(batch_size)
        subject = _with_batch(model, batch, compiled)
    with _users_code("the model, called with the batch,"):
        subject.forward()  # builds what is not built
    if not model.trainable_variables:
        raise UsageError("the model has no trainable weights: there are no gradients to send")
    model.optimizer.build(model.trainable_variables)
    return subject


@contextlib.contextmanager
def _users_code(name: str) -> Iterator[None]:
    """Turns what the user's code raises into a UsageError that names it."""
    try:
        yield
    except Exception as error:
        raise UsageError(f"{name} raised {type(error).__name__}: {error}") from error


def _with_batch(model: Any, batch: Any, compiled: bool) -> Subject:
    if not isinstance(batch, tuple) or len(batch) != 2:
        raise UsageError(f"make_batch must return a tuple (x, y), got {type(batch).__name__}")
    if not compiled or model.loss is None:
        raise UsageError("with --batch, make_model must compile its model with a loss")
    x, y = tf.nest.map_structure(tf.convert_to_tensor, batch)
    return Subject(model, x, lambda outputs: model.compute_loss(x=x, y=y, y_pred=outputs))


def _mean_square(outputs: Any) -> tf.Tensor:
    squares = [tf.reduce_mean(tf.cast(out, tf.float32) ** 2) for out in tf.nest.flatten(outputs)]
    return tf.add_n(squares)


def _random_inputs(model: Any, batch_size: int) -> Any:
    """Returns inputs of the shapes and dtypes that the model says."""
    inputs = getattr(model, "inputs", None)
    if not inputs:
        raise UsageError(
            "the model does not say which inputs it takes: begin it with keras.Input, or give "
            "--batch FILE.py:FUNCTION, which returns (x, y)"
        )
    words = min((layer.input_dim for layer in _embeddings(model)), default=2)
    # A functional model has its inputs as a tensor, a list or a dict; others have one.
    structure = inputs[0] if len(inputs) == 1 else model.input
    return tf.nest.map_structure(lambda spec: _random(spec, batch_size, words), structure)


def _random(spec: Any, batch_size: int, words: int) -> tf.Tensor:
    shape = (batch_size, *spec.shape[1:])
    if None in shape:
        raise UsageError(
            f"input {spec.name!r} has the shape {tuple(spec.shape)}: only the first dimension, the "
            "batch, may be None. Give all others to keras.Input, or give --batch"
        )
    dtype = tf.as_dtype(spec.dtype)
    if dtype.is_floating:
        return tf.cast(tf.random.stateless_normal(shape, seed=(1, 2)), dtype)
    if dtype.is_integer:
        # Numbers below the size of every Embedding; without any, 0 and 1.
        numbers = tf.random.stateless_uniform(shape, (1, 2), 0, words, tf.int32)
        return tf.cast(numbers, dtype)
    if dtype.is_bool:
        return tf.random.stateless_uniform(shape, (1, 2)) < 0.5
    raise UsageError(
        f"input {spec.name!r} is of {dtype.name}, for which there are no random values: give "
        "--batch"
    )


def _embeddings(model: Any) -> Iterator[Any]:
    """Yields the layers that look up rows of a table of `input_dim` rows, nested ones too."""
    for layer in model.layers:
        if hasattr(layer, "input_dim") and hasattr(layer, "output_dim"):
            yield layer
        if hasattr(layer, "layers"):
            yield from _embeddings(layer)
