"""Writes the state kept for a model's variables, above all residuals, to a file, and reads it."""

import dataclasses
import zipfile
from typing import Any, TypeAlias

import tensorflow as tf

from tf_gc.keras.strategy import strategy_of
from tf_gc.state import residuals
from tf_gc.state.layout import Entry, Key, read, write
from tf_gc.steps.compression_state import NOTHING_COMPRESSED, CompressionState, describe_residuals

# Of each variable of a model, in the model's order, the path and then the sizes of its shape.
Variables: TypeAlias = list[list[Any]]


def write_residuals(model: Any, path: str | None, **more: Any) -> None:
    """Sums what replicas keep of a model's variables, a collective; writes it, and JSON of `more`.

    Without a path it takes part in the sums and writes nothing.
    """
    state = _state(model)
    entries = []
    if state is not None:
        key_of = {state.key(v.value): Key(v.path, i, None) for i, v in enumerate(model.weights)}
        entries = [
            dataclasses.replace(entry, key=key_of[entry.key.of(None)].of(entry.key.stream))
            for entry in state.saved()
            if entry.key.of(None) in key_of
        ]
    if path is None:
        for entry in entries:
            entry.numpy()
        return
    with tf.io.gfile.GFile(path, "wb") as file:
        write(file, entries, variables=_variables(model), **more)


def read_residuals(path: str) -> tuple[list[Entry], dict[str, Any]]:
    """Reads the entries kept for a model's variables, and these and `more`, or raises OSError."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return read(file)
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile, tf.errors.OpError) as error:
        raise OSError(f"{path}: {error}") from error


def restore_residuals(model: Any, saved: list[Entry], variables: Variables) -> list[str]:
    """Gives each replica an equal part of the sums. All other residuals become zero.

    If the model's variables have the saved shapes in the saved order, this function takes it for
    the saved model, whatever the names: Keras numbers the names of layers as a process happens to
    make them. In any other model it finds variables by path and shape. It returns clauses that say
    what did not fit.
    """
    state = _state(model)
    if state is not None:
        state.reset()
    count = len({e.key.number for e in saved if e.slot == residuals.SLOT.name})
    if state is None or not state.in_use:
        return [f"residuals of {count} {NOTHING_COMPRESSED}"] if count else []
    if not count:
        return ["it has no residuals, and they start at zero"]
    mine = _variables(model)
    same = [shape for _, *shape in mine] == [shape for _, *shape in variables]
    number_of = {tuple(variable): number for number, variable in enumerate(mine)}
    restored: list[Entry] = []
    dropped, orphans = set(), []
    for entry in saved:
        key = entry.key
        number = key.number if same else number_of.get((*variables[key.number],))
        if number is not None:
            of_model = state.key(model.weights[number].value).of(key.stream)
            restored.append(dataclasses.replace(entry, key=of_model))
        elif entry.slot == residuals.SLOT.name:
            dropped.add(key.variable)
        else:
            orphans.append(entry)
    # The optimizer remembers the steps of a warm-up, whatever became of its first variable.
    for orphan in orphans:
        heirs = [entry.key for entry in restored if entry.key.stream == orphan.key.stream]
        if heirs:
            restored.append(dataclasses.replace(orphan, key=heirs[0]))
    state.restore(restored)
    said = describe_residuals(dropped, "dropped, the model has no such variables")
    return [said] if said else []


def _variables(model: Any) -> Variables:
    return [[variable.path, *variable.shape] for variable in model.weights]


def _state(model: Any) -> CompressionState | None:
    strategy = strategy_of(model)
    return None if strategy is None else strategy.compression_state
