"""Writes what is kept of a model's variables to a file and reads it: above all their residuals."""

import dataclasses
import io
import json
import re
import zipfile
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tf_gc.state import residuals
from tf_gc.state.book import Saved
from tf_gc.steps import warm_up
from tf_gc.steps.compression_state import NOTHING_COMPRESSED, CompressionState, describe_residuals

# The file has an array for each value, by slot and number of the variable, and these two besides.
_LAYOUT, _STREAMS = "variables", "streams"
_NAME = re.compile(r"(?:(\w+)_)?(\d+)(?:@\d+)?")

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Value:
    """What a stream of gradients keeps for a variable.

    Attributes:
      slot: the name of what is kept: of a residual, the sum over the replicas.
      number: the variable's number in the layout.
      stream: the name of the stream, `None` in a file of before there were streams.
      array: float32.
    """

    slot: str
    number: int
    stream: str | None
    array: Array


@dataclasses.dataclass(frozen=True)
class Totals:
    """The contents of a file with residuals.

    Attributes:
      layout: path and shape of each variable of the model that was saved, in the model's order.
      values: all that was kept.
    """

    layout: list[tuple[str, tuple[int, ...]]]
    values: list[Value]

    @property
    def numbers(self) -> list[int]:
        """The numbers of the variables that have residuals."""
        return sorted({v.number for v in self.values if v.slot == residuals.SLOT.name})


def write_totals(model: Any, path: str | None) -> None:
    """Sums the residuals of a model's variables over all replicas and writes them.

    All workers have to call this, since the sums are collectives.

    Args:
      model: a Keras model; under a strategy without residuals the file contains none.
      path: the path of the file, or `None` to take part in the sums without writing.
    """
    arrays: dict[str, Any] = {_LAYOUT: np.array(json.dumps(_layout(model)))}
    streams: dict[str, str | None] = {}
    state = _state(model)
    for number, variable in enumerate(model.weights):
        for slot, stream, array in [] if state is None else _kept(state, variable.value):
            name = base = str(number) if slot == residuals.SLOT.name else f"{slot}_{number}"
            for other in range(1, len(arrays)):
                if name in arrays:
                    name = f"{base}@{other}"
            arrays[name], streams[name] = array, stream
    arrays[_STREAMS] = np.array(json.dumps(streams))
    if path is not None:
        whole = io.BytesIO()  # np.savez seeks backwards, which tf.io.gfile cannot do
        np.savez(whole, **arrays)
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(whole.getvalue())


def read_totals(path: str) -> Totals:
    """Reads what `write_totals` wrote.

    Raises:
      OSError: if the file cannot be read.
    """
    try:
        with tf.io.gfile.GFile(path, "rb") as file, np.load(file) as arrays:
            layout = json.loads(str(arrays[_LAYOUT]))
            streams = json.loads(str(arrays[_STREAMS])) if _STREAMS in arrays.files else {}
            # In the order of the file, which all workers share: making residuals takes collectives.
            values = [
                Value(
                    found[1] or residuals.SLOT.name, int(found[2]), streams.get(name), arrays[name]
                )
                for name in arrays.files
                if (found := _NAME.fullmatch(name)) is not None
            ]
            return Totals([(name, tuple(shape)) for name, shape in layout], values)
    except (ValueError, EOFError, zipfile.BadZipFile, tf.errors.OpError) as error:
        raise OSError(f"{path}: {error}") from error


def restore_totals(model: Any, totals: Totals | None) -> list[str]:
    """Gives each replica an equal part of the sums. All other residuals become zero.

    If the model's variables have the saved shapes in the saved order, this function takes it for
    the saved model, whatever the names: Keras numbers the names of layers as a process happens to
    make them. In any other model it finds variables by path and shape.

    Args:
      model: a Keras model.
      totals: the contents of the file; `None` for a backup that cannot have residuals.

    Returns:
      What did not fit, in words.
    """
    state = _state(model)
    if state is not None:
        state.reset()
    compresses = state is not None and state.in_use
    if totals is None or not totals.numbers:
        return ["it has no residuals, and they start at zero"] if compresses else []
    if state is None or not compresses:
        return [f"residuals of {len(totals.numbers)} variables dropped, {NOTHING_COMPRESSED}"]
    mine = _layout(model)
    same = [shape for _, shape in mine] == [shape for _, shape in totals.layout]
    number_of = {entry: number for number, entry in enumerate(mine)}
    target_of = {
        value.number: value.number if same else number_of.get(totals.layout[value.number])
        for value in totals.values
    }
    restored, lost = [], []
    for value in totals.values:
        target = target_of[value.number]
        if target is not None:
            owner = state.owner(value.stream, model.weights[target].value)
            restored.append(Saved(value.slot, owner, value=value.array))
        elif value.slot == warm_up.SLOT.name:
            lost.append(value)
    # The optimizer remembers the steps of a warm-up, whatever became of its first variable.
    with_warm_up = [saved.owner for saved in restored if saved.slot == warm_up.SLOT.name]
    for value in lost:
        heirs = [s.owner for s in restored if s.owner.stream == value.stream]
        heir = next((owner for owner in heirs if owner not in with_warm_up), None)
        if heir is not None:
            with_warm_up.append(heir)
            restored.append(Saved(value.slot, heir, value=value.array))
    state.restore(restored)
    dropped = [totals.layout[n][0] for n in totals.numbers if target_of[n] is None]
    return (
        [describe_residuals(dropped, "dropped, the model has no such variables")] if dropped else []
    )


def _kept(state: CompressionState, variable: tf.Variable) -> list[tuple[str, str | None, Array]]:
    """Returns slot, stream and value of all that is kept for a variable, or waits for it."""
    kept = [(e.slot, e.owner.stream, e.value.numpy()) for e in state.entries(variable)]
    waiting = [(s.slot, s.owner.stream, s.value) for s in state.saved(variable) if s.waits]
    return [*kept, *((slot, stream, value) for slot, stream, value in waiting if value is not None)]


def _layout(model: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(variable.path, tuple(variable.shape)) for variable in model.weights]


def _state(model: Any) -> CompressionState | None:
    return getattr(model.distribute_strategy, "compression_state", None)
