"""Residuals of a model in a file: their sums over all replicas, by variable."""

import dataclasses
import io
import json
import zipfile
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tf_gc.codecs import MessageCodec
from tf_gc.residuals import NOTHING_COMPRESSED, CompressionState, said_of

_LAYOUT = "variables"
_WARM_UP = "warm_up_"


@dataclasses.dataclass(frozen=True)
class Totals:
    """What a file holds.

    Attributes:
      layout: path and shape of each variable of the model that was saved, in its order.
      sums: float32 sums of residuals, by the variable's number in `layout`.
      warm_ups: the states of warm-ups (`tf_gc.warm_up`), by that number.
    """

    layout: list[tuple[str, tuple[int, ...]]]
    sums: dict[int, npt.NDArray[np.float32]]
    warm_ups: dict[int, npt.NDArray[np.float32]]


def write_totals(model: Any, path: str | None) -> None:
    """Sums the residuals of a model's variables over all replicas and writes them.

    All workers have to call it, since the sums are collectives.

    Args:
      model: a Keras model; under a strategy without residuals the file holds none.
      path: of the file, `None` to take part in the sums only.
    """
    arrays: dict[str, Any] = {_LAYOUT: np.array(json.dumps(_layout(model)))}
    state = _state(model)
    for number, variable in enumerate(model.weights):
        total = None if state is None else state.total(variable.value)
        if total is not None and path is not None:
            arrays[str(number)] = total
        if state is not None and state.has_warm_up(variable.value):
            arrays[f"{_WARM_UP}{number}"] = state.warm_up_of(variable.value).numpy()
    if path is not None:
        whole = io.BytesIO()  # np.savez goes back in a file, which tf.io.gfile does not
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
            # In the file's order, the same on all workers: to make residuals takes collectives.
            names = [name for name in arrays.files if name != _LAYOUT]
            sums = [name for name in names if not name.startswith(_WARM_UP)]
            warm_ups = [name for name in names if name.startswith(_WARM_UP)]
            return Totals(
                [(name, tuple(shape)) for name, shape in layout],
                {int(name): arrays[name] for name in sums},
                {int(name.removeprefix(_WARM_UP)): arrays[name] for name in warm_ups},
            )
    except (ValueError, EOFError, zipfile.BadZipFile, tf.errors.OpError) as error:
        raise OSError(f"{path}: {error}") from error


def restore_totals(model: Any, totals: Totals | None) -> list[str]:
    """Gives the replicas equal parts of the sums; residuals that are not in there become zero.

    A model of the same shapes in the same order is the same: Keras numbers the names of layers
    as a process happens to make them. In another one variables are found by path and shape.

    Args:
      model: a Keras model.
      totals: what was read; `None` for a backup that cannot have residuals.

    Returns:
      What did not fit, in words.
    """
    state = _state(model)
    if state is not None:
        state.reset()
    compresses = state is not None and isinstance(model.distribute_strategy.codec, MessageCodec)
    if totals is None or not totals.sums:
        return ["it has no residuals, and they start at zero"] if compresses else []
    if state is None or not compresses:
        return [f"residuals of {len(totals.sums)} variables dropped, {NOTHING_COMPRESSED}"]
    mine = _layout(model)
    same = [shape for _, shape in mine] == [shape for _, shape in totals.layout]
    number_of = {entry: number for number, entry in enumerate(mine)}
    dropped = []
    for number, total in totals.sums.items():
        target = number if same else number_of.get(totals.layout[number])
        if target is None:
            dropped.append(totals.layout[number][0])
        else:
            variable = model.weights[target].value
            state.set_total(variable, total)
            if number in totals.warm_ups:
                state.warm_up_of(variable).assign(totals.warm_ups[number])
    if not dropped:
        return []
    return [said_of(dropped, "dropped, the model has no such variables")]


def _layout(model: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(variable.path, tuple(variable.shape)) for variable in model.weights]


def _state(model: Any) -> CompressionState | None:
    return getattr(model.distribute_strategy, "compression_state", None)
