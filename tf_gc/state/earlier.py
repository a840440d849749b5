"""Checkpoints of earlier versions, in which TensorFlow kept each value separately."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_gc.state.layout import Entry, Key

Path = tuple[str, ...]  # of a part: a module for the slot, and in it a name
_LAYOUT: Path = ("_saved_keys",)


class EarlierCheckpoint:
    """Collects the parts of a checkpoint, and restores them when the last one has arrived."""

    def __init__(self, restore: Callable[[Sequence[Entry]], None]) -> None:
        self._restore = restore
        self._parts: dict[Path, _Part] = {}  # TensorFlow does not keep them alive
        self._missing: dict[Path, Entry] = {}
        self._arrived: list[Entry] = []

    def part(self, *path: str) -> "_Part":
        """Returns what takes a part."""
        return self._parts.setdefault(path, _Part(self, path))

    def take(self, path: Path, value: Any) -> None:
        """Takes the layout, which comes first, or a value."""
        if path == _LAYOUT:
            entries = _read_layout(json.loads(value))
            self._missing = {path: e for path, e in entries.items() if path in self._parts}
            self._arrived = []
        elif path in self._missing:
            self._arrived.append(dataclasses.replace(self._missing.pop(path), value=value))
        else:
            return
        if not self._missing:
            arrived, self._arrived = self._arrived, []
            self._restore(arrived)


class _Part(tf.train.experimental.PythonState):
    """A part. TensorFlow asks it for those below it, and gives it what the checkpoint holds."""

    def __init__(self, checkpoint: EarlierCheckpoint, path: Path) -> None:
        self._checkpoint, self._path = checkpoint, path

    def _lookup_dependency(self, name: str, cached_dependencies: Any = None) -> "_Part":
        return self._checkpoint.part(*self._path, name)

    def serialize(self) -> str:
        raise NotImplementedError

    def deserialize(self, string_value: Any) -> None:
        self._checkpoint.take(self._path, string_value)


def _read_layout(layout: Any) -> dict[Path, Entry]:
    """Returns entries without values by their paths."""
    if isinstance(layout, dict) and "values" in layout:
        rows = layout["values"]
        return {(f"_{slot}s", name): Entry(slot, Key(*key), None) for slot, name, *key in rows}
    # Before version 0.2 all streams shared a value. At first there were only residuals.
    of_slots = layout if isinstance(layout, dict) else {"residuals": layout}
    entries: dict[Path, Entry] = {}
    for slots, names in of_slots.items():
        for name in names:
            variable, _, number = name.rpartition(".residual")
            key = Key(variable, int(number.removeprefix("_") or 0), None)
            entries[f"_{slots}", name] = Entry(slots.removesuffix("s"), key, None)
    return entries
