"""How TensorFlow saves and restores the values of a registry: as tensors of one object."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tf_gc import _compat
from tf_gc.state.layout import Entry, Key

if TYPE_CHECKING:
    from tf_gc.state.registry import StateRegistry

# The layout's version. Without it, a checkpoint without values would restore nothing.
_VERSION = Entry("version", Key("tf_gc", 0), np.float32(1))


class Saveables(dict[str, Callable[..., Any]]):
    """What makes the tensors to save, by their names; to restore, of any name a checkpoint has.

    Only the checkpoint knows what it holds, maybe of variables that do not exist yet. The registry
    gets all at once, when the last one was read.
    """

    def __init__(self, registry: "StateRegistry") -> None:
        self._registry = registry
        self._expected = 0
        self._restored: list[Entry] = []
        # A SavedModel's functions do not use them; its variables have them, as a checkpoint does.
        if not _compat.in_save_context():
            self.update({e.name: self._maker(e) for e in (_VERSION, *registry.saved())})

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> Callable[..., Any]:
        try:
            return self._maker(Entry.named(name, None))
        except ValueError:
            raise ValueError(f"another version of tf_gc wrote this checkpoint: {name!r}") from None

    def __bool__(self) -> bool:
        return True

    def read(self, entry: Entry) -> tf.Tensor:
        """Returns a value as of now; in a function that is being built, as of each call."""
        if isinstance(entry.value, tf.Variable):
            return entry.total()
        if tf.executing_eagerly():
            return tf.convert_to_tensor(self._registry.now(entry).numpy())
        spec = tf.TensorSpec(entry.value.shape, tf.float32)
        graph = tf.compat.v1.get_default_graph()
        return graph.capture_call_time_value(functools.partial(self.read, entry), spec)

    def restore(self, entry: Entry, value: Any) -> None:
        """Takes a value from a checkpoint."""
        self._restored.append(Entry(entry.slot, entry.key, value))
        if len(self._restored) == self._expected:
            self._registry.restore([e for e in self._restored if e.slot != _VERSION.slot])

    def _maker(self, entry: Entry) -> Callable[..., Any]:
        def make(name: str) -> _Saveable:
            self._expected += 1
            return _Saveable(self, entry, name)

        return make


class _Saveable(_compat.SaveableObject):
    def __init__(self, saveables: Saveables, entry: Entry, name: str) -> None:
        self._restore = functools.partial(saveables.restore, entry)
        with tf.init_scope(), tf.device("CPU:0"):
            self._device = tf.constant(0).device  # the host's, or TensorFlow would save in parts
        read = functools.partial(saveables.read, entry)
        spec = _compat.SaveSpec(read, "", name, dtype=tf.float32, device=self._device)
        super().__init__(None, [spec], name)

    def restore(self, restored_tensors: Any, restored_shapes: Any) -> Any:
        (value,) = restored_tensors
        if tf.executing_eagerly():
            return self._restore(value)
        # From several servers TensorFlow restores in a function.
        with tf.device(self._device):
            return tf.numpy_function(self._restore, [value], [])
