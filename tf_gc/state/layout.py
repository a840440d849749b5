"""The layout of checkpoints and backups: arrays, and whose they are."""

import dataclasses
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Key:
    """The owner of a value: a variable and a stream."""

    variable: str  # its name; in a backup, its path
    number: int  # among those of its name, by their first reductions; in a backup, in the model
    stream: str | None = None  # `None` for all

    def of(self, stream: str | None) -> "Key":
        """Returns the key of the variable for a stream of this name."""
        return dataclasses.replace(self, stream=stream)

    def __str__(self) -> str:
        which = f" ({self.number + 1})" if self.number else ""
        return f"{self.variable}{which}" + (f" of {self.stream}" if self.stream else "")


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
    """A value by its slot and key: a distributed variable or, in a checkpoint, a float32 array."""

    slot: str
    key: Key
    value: Any


def pack(entries: Sequence[Entry], **more: Any) -> bytes:
    """Returns a file of `np.savez`: the arrays by their numbers, and JSON, also of `more`."""
    rows = [[e.slot, e.key.variable, e.key.number, e.key.stream] for e in entries]
    arrays: dict[str, Any] = {str(i): entry.value for i, entry in enumerate(entries)}
    whole = io.BytesIO()
    np.savez(whole, layout=np.array(json.dumps({"entries": rows, **more})), **arrays)
    return whole.getvalue()


def unpack(data: bytes) -> tuple[list[Entry], dict[str, Any]]:
    """Returns the entries and the JSON of what `pack` returned."""
    with np.load(io.BytesIO(data)) as arrays:
        layout = json.loads(str(arrays["layout"]))
        rows = enumerate(layout["entries"])
        return [Entry(slot, Key(*key), arrays[str(i)]) for i, (slot, *key) in rows], layout
