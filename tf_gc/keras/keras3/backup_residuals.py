"""Writes the residuals of a model to a file and reads them: for each variable, their sum."""

import dataclasses
import io
import json
import re
import zipfile
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tf_gc.residuals import CompressionState
from tf_gc.restored import NOTHING_COMPRESSED, said_of

_LAYOUT = "variables"
_WARM_UP = "warm_up_"
_TRIAL = "trial_"


@dataclasses.dataclass(frozen=True)
class Totals:
    """The contents of a file with residuals.

    Attributes:
      layout: path and shape of each variable of the model that was saved, in the model's order.
      sums: float32 sums of residuals, by the variable's number in `layout`.
      warm_ups: the states of warm-ups (`tf_gc.warm_up`), by the variable's number in `layout`.
      trials: likewise the states of trials (`tf_gc.trial`).
    """

    layout: list[tuple[str, tuple[int, ...]]]
    sums: dict[int, npt.NDArray[np.float32]]
    warm_ups: dict[int, npt.NDArray[np.float32]]
    trials: dict[int, npt.NDArray[np.float32]]


def write_totals(model: Any, path: str | None) -> None:
    """Sums the residuals of a model's variables over all replicas and writes them.

    All workers have to call this, since the sums are collectives.

    Args:
      model: a Keras model; under a strategy without residuals the file contains none.
      path: the path of the file, or `None` to take part in the sums without writing.
    """
    arrays: dict[str, Any] = {_LAYOUT: np.array(json.dumps(_layout(model)))}
    state = _state(model)
    for number, variable in enumerate(model.weights):
        total = None if state is None else state.total(variable.value)
        if total is not None and path is not None:
            arrays[str(number)] = total
        if state is not None and state.has_warm_up(variable.value):
            arrays[f"{_WARM_UP}{number}"] = state.warm_up_of(variable.value).numpy()
        if state is not None and state.has_trial(variable.value):
            arrays[f"{_TRIAL}{number}"] = state.trial_of(variable.value).numpy()
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
            # In the order of the file, which all workers share: making residuals takes collectives.
            names = [name for name in arrays.files if name != _LAYOUT]

            def numbered(prefix: str) -> dict[int, npt.NDArray[np.float32]]:
                mine = [name for name in names if re.fullmatch(rf"{prefix}\d+", name)]
                return {int(name.removeprefix(prefix)): arrays[name] for name in mine}

            return Totals(
                [(name, tuple(shape)) for name, shape in layout],
                sums=numbered(""),
                warm_ups=numbered(_WARM_UP),
                trials=numbered(_TRIAL),
            )
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
    if totals is None or not totals.sums:
        return ["it has no residuals, and they start at zero"] if compresses else []
    if state is None or not compresses:
        return [f"residuals of {len(totals.sums)} variables dropped, {NOTHING_COMPRESSED}"]
    mine = _layout(model)
    same = [shape for _, shape in mine] == [shape for _, shape in totals.layout]
    number_of = {entry: number for number, entry in enumerate(mine)}
    dropped, restored, lost = [], [], []
    for number, total in totals.sums.items():
        target = number if same else number_of.get(totals.layout[number])
        if target is None:
            dropped.append(totals.layout[number][0])
            lost += [totals.warm_ups[number]] if number in totals.warm_ups else []
        else:
            variable = model.weights[target].value
            state.set_total(variable, total)
            restored.append(variable)
            if number in totals.warm_ups:
                state.restore_warm_up(variable, totals.warm_ups[number])
            if number in totals.trials:
                state.trial_of(variable).assign(totals.trials[number])
    # The optimizer remembers the steps of a warm-up, whatever became of its first variable.
    heirs = [variable for variable in restored if not state.has_warm_up(variable)]
    for variable, warm_up in zip(heirs, lost, strict=False):
        state.restore_warm_up(variable, warm_up)
    if not dropped:
        return []
    return [said_of(dropped, "dropped, the model has no such variables")]


def _layout(model: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(variable.path, tuple(variable.shape)) for variable in model.weights]


def _state(model: Any) -> CompressionState | None:
    return getattr(model.distribute_strategy, "compression_state", None)
