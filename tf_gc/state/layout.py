"""The layout of checkpoints and backups: values, and whose they are."""

import dataclasses
import json
import types
import zipfile
from collections.abc import Iterable
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tf_gc import _compat
from tf_gc.state.stored import widened

Array = npt.NDArray[np.float32]

# In a backup, the name of what is said of its arrays.
_LAYOUT = "layout.json"


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
    """A value by its slot and key: a distributed variable or, restored, a float32 array."""

    slot: str
    key: Key
    value: Any
    shape: Any = None  # which a distributed variable's value has, in whatever shape it is stored
    narrower: tuple[Any, ...] = ()  # values to be added, of functions traced before this was made

    @property
    def name(self) -> str:
        """The name in a checkpoint, from which `named` makes slot and key again."""
        return json.dumps([self.slot, self.key.variable, self.key.number, self.key.stream])

    @classmethod
    def named(cls, name: str, value: Any) -> "Entry":
        """Returns the entry of a name in a checkpoint."""
        slot, *key = json.loads(name)
        return cls(slot, Key(*key), value)

    def numpy(self) -> Array:
        """Returns the sum over all replicas, in the value's shape; of a variable a collective."""
        if isinstance(self.value, tf.Variable):
            return np.asarray(self.total())
        if isinstance(self.value, np.ndarray | np.generic):
            return np.asarray(self.value)
        return np.asarray(sum(each.numpy() for each in (self.value, *self.narrower)))

    def total(self) -> tf.Tensor:
        """Returns the float32 value of a distributed variable; of parts the sum over replicas."""
        variable = self.value
        if variable.dtype == tf.float32 and not self.narrower:
            return tf.convert_to_tensor(variable)
        of_replicas = zip(*(each.values for each in (variable, *self.narrower)), strict=True)
        parts = _compat.PerReplica(
            [tf.add_n([widened(each, self.shape) for each in kept]) for kept in of_replicas]
        )
        return variable.distribute_strategy.reduce(tf.distribute.ReduceOp.SUM, parts, axis=None)


def write(file: IO[bytes], entries: Iterable[Entry], **more: Any) -> None:
    """Writes a file that `np.load` reads: arrays by numbers, one at a time, and JSON of `more`."""

    def put(data: bytes) -> int:
        file.write(data)  # TensorFlow's files return nothing
        return len(data)

    names = []
    stream: Any = types.SimpleNamespace(write=put, flush=file.flush)  # nor do they seek
    with zipfile.ZipFile(stream, "w") as archive:
        for i, entry in enumerate(entries):
            names.append(entry.name)
            with archive.open(f"{i}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, entry.numpy(), allow_pickle=False)
        archive.writestr(_LAYOUT, json.dumps({"entries": names, **more}))


def read(file: IO[bytes]) -> tuple[list[Entry], dict[str, Any]]:
    """Returns the entries and the JSON of what `write` wrote."""
    with np.load(file) as arrays:
        layout = json.loads(arrays[_LAYOUT])
        names = enumerate(layout["entries"])
        return [Entry.named(name, arrays[str(i)]) for i, name in names], layout
