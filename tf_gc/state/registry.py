"""The state registry: what replicas keep between steps, by stream, variable and slot."""

import copy
import dataclasses
import gc
import itertools
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.state.layout import Entry, Key
from tf_gc.state.saveables import Saveables
from tf_gc.state.stored import narrowed, stored_shape, widened
from tf_gc.state.stream import Stream


@dataclasses.dataclass(frozen=True)
class Slot:
    """One thing that is kept for a variable, in checkpoints in float32."""

    name: str  # in checkpoints
    size: int | None = None  # of a vector, alike on all; `None`: parts of a sum, of its shape
    dtype: tf.DType = tf.float32  # of parts of a sum, as `stored` says


@dataclasses.dataclass(frozen=True)
class Zeros:
    """An initial value that workers do not broadcast, as a stock strategy has them do."""

    shape: tf.TensorShape
    dtype: tf.DType

    def __call__(self) -> tf.Tensor:
        return tf.zeros(self.shape, self.dtype)


class _OfVariable:
    """A registry's values for a variable; they are in the variable, and so end with it."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.values = weakref.WeakKeyDictionary[Stream, dict[str, Entry]]()
        self.notes = weakref.WeakKeyDictionary[Stream, dict[Any, Any]]()


class StateRegistry(tf.__internal__.tracking.Trackable):
    """The values that streams keep for variables, by slot. Any thread may call it.

    A value is made, with zeros, when a stream first asks for it, and ends with its stream or its
    variable. A checkpoint holds all values, a tensor each. Restored ones wait for streams or
    variables that do not exist yet, and further checkpoints hold what waits.
    """

    def __init__(self) -> None:
        self.waiting: list[Entry] = []  # restored arrays that nobody has asked for
        self.restored: dict[tuple[str, Key], bool] = {}  # whether they had the right shape
        self._variables = weakref.WeakValueDictionary[Key, Any]()
        self._streams = weakref.WeakSet[Stream]()
        self._lock = threading.RLock()

    def value(self, slot: Slot, stream: Stream, variable: Any) -> Any:
        """Returns what a stream keeps for a distributed variable, in the slot's dtype or wider."""
        with self._lock:
            mine = self._of(variable, stream)
            values = mine.values.setdefault(stream, {})
            before = values.get(slot.name)
            if before is None or before.value.dtype.size < slot.dtype.size:
                shape = tf.TensorShape(variable.shape if slot.size is None else [slot.size])
                value = self._make(slot, variable, shape, f"{mine.key.variable}.{slot.name}")
                narrower = () if before is None else (before.value, *before.narrower)
                key = mine.key.of(stream.name)
                values[slot.name] = Entry(slot.name, key, value, shape, narrower)
                if before is None:
                    self._give(values[slot.name])
                else:
                    _hand_over(before, values[slot.name])
            return values[slot.name].value

    def notes(self, stream: Stream, variable: Any) -> dict[Any, Any]:
        """Returns what callers remember of a stream and a variable, and nobody saves."""
        with self._lock:
            return self._of(variable, stream).notes.setdefault(stream, {})

    def has(self, slot: Slot, stream: Stream, variable: Any) -> bool:
        """Returns whether a value exists, or waits for this stream and variable."""
        with self._lock:
            mine = self._of(variable, stream)
            exists = slot.name in mine.values.get(stream, {})
            return exists or self._waits(slot.name, mine.key.of(stream.name)) is not None

    def entries(self, variable: Any = None, slot: Slot | None = None) -> list[Entry]:
        """Returns the values that are kept: of a variable or all, in a slot or all."""
        with self._lock:
            known = list(self._variables.values())  # to ask for entries makes no key
            return [
                entry
                for mine in (self._of(v) for v in known if variable is None or v is variable)
                for values in list(mine.values.values())
                for entry in values.values()
                if slot is None or entry.slot == slot.name
            ]

    @property
    def variables(self) -> tuple[Any, ...]:
        """All values that exist."""
        return tuple(entry.value for entry in self.entries())

    def key(self, variable: Any) -> Key:
        """Returns the key of a variable for all streams."""
        with self._lock:
            return self._of(variable).key

    def saved(self) -> list[Entry]:
        """Returns what a checkpoint holds, to be read by `Entry.numpy`.

        All workers read the values in this order: to read one is a collective.
        """
        gc.collect()  # workers have to sum the same, whatever garbage each of them has collected
        with self._lock:
            return [*self.entries(), *self.waiting]

    def now(self, entry: Entry) -> Entry:
        """Returns an entry with the value that it has by now: one that waited is a variable's."""
        same = (e for e in self.entries() if (e.slot, e.key) == (entry.slot, entry.key))
        return next(same, entry)

    def restore(self, saved: Sequence[Entry]) -> None:
        """Takes all values from a checkpoint or a backup; values that are not in it become zero."""
        with self._lock:
            self.reset()
            self.waiting = list(saved)
            exact = {(entry.slot, entry.key) for entry in saved}
            for entry in sorted(self.entries(), key=lambda e: (e.slot, e.key) not in exact):
                self._give(entry)

    def reset(self) -> None:
        """Sets all values to zero, and drops those that wait."""
        with self._lock:
            kept = [value for e in self.entries() for value in (e.value, *e.narrower)]
            for component in (each for value in kept for each in value.values):
                component.assign(tf.zeros(component.shape, component.dtype))
            self.waiting, self.restored = [], {}

    def _gather_saveables_for_checkpoint(self) -> Saveables:
        return Saveables(self)

    @tf.autograph.experimental.do_not_convert
    def _copy_trackable_to_cpu(self, object_map: Any) -> None:
        def copy_all() -> tf.Tensor:
            copied = copy.copy(self)
            copied.waiting = [dataclasses.replace(e, value=e.numpy()) for e in self.saved()]
            copied._variables = weakref.WeakValueDictionary()
            object_map[self] = copied
            return tf.constant(True)

        if tf.executing_eagerly():
            copy_all()
        else:
            # Another thread writes copies, which TensorFlow updates in a function that it traces
            # once. This copies eagerly, before each of its calls.
            graph = tf.compat.v1.get_default_graph()
            graph.capture_call_time_value(copy_all, tf.TensorSpec([], tf.bool))

    def _of(self, variable: Any, stream: Stream | None = None) -> _OfVariable:
        """Returns what is kept for a variable. Call only while holding the lock."""
        if stream is not None and stream not in self._streams:
            if self._variables:
                gc.collect()  # or keys would depend on when old models and optimizers are collected
            self._streams.add(stream)
        kept = vars(variable).setdefault("_tf_gc_kept", weakref.WeakKeyDictionary())
        if self not in kept:
            keys = (Key(variable.name.split(":")[0], number) for number in itertools.count())
            key = next(key for key in keys if key not in self._variables)
            kept[self] = _OfVariable(key)
            self._variables[key] = variable
        mine: _OfVariable = kept[self]
        return mine

    def _make(self, slot: Slot, variable: Any, shape: tf.TensorShape, name: str) -> Any:
        kind = ("ON_READ", "SUM") if slot.size is None else ("AUTO", "ONLY_FIRST_REPLICA")
        with tf.init_scope(), variable.distribute_strategy.scope():
            return tf.Variable(
                Zeros(stored_shape(shape, slot.dtype), slot.dtype),
                trainable=False,
                synchronization=tf.VariableSynchronization[kind[0]],
                aggregation=tf.VariableAggregation[kind[1]],
                name=name,
                # Or a function would be traced a second time, to lift the variable out of it.
                experimental_enable_variable_lifting=False,
            )

    def _waits(self, slot: str, key: Key) -> Entry | None:
        """Returns the restored value that a key would get. Call only while holding the lock."""
        found = [e for e in self.waiting if e.slot == slot and e.key.of(None) == key.of(None)]
        # Keras numbers optimizers as a process happens to make them.
        return next((e for e in found if e.key == key), found[0] if found else None)

    def _give(self, entry: Entry) -> None:
        """Gives an entry what waits for it. Call only while holding the lock."""
        if waiting := self._waits(entry.slot, entry.key):
            fits = tuple(waiting.value.shape) == tuple(entry.shape)
            if fits:
                with tf.init_scope():
                    _assign(entry.value, waiting.value)
            self.waiting.remove(waiting)
            self.restored[entry.slot, entry.key] = fits


def _assign(variable: Any, value: Any) -> None:
    """Gives each replica of this host the value, or its part of a sum."""
    mine = tf.convert_to_tensor(value, tf.float32)
    if variable.aggregation == tf.VariableAggregation.SUM:
        parts = len(variable.values)  # on the workers that are alive
        if isinstance(variable, tf.Variable):
            parts = variable.distribute_strategy.num_replicas_in_sync
        if parts == 0:
            raise tf.errors.UnavailableError(
                None, None, "no worker is alive to take what was restored: restore it again later"
            )
        mine = mine / parts
    for component in variable.values:
        component.assign(narrowed(mine, component.dtype))


def _hand_over(before: Entry, now: Entry) -> None:
    """Moves what each replica of this host keeps to where it is kept in a wider dtype."""
    with tf.init_scope():
        for mine, wider in zip(before.value.values, now.value.values, strict=True):
            wider.assign(narrowed(widened(mine, now.shape), wider.dtype))
            mine.assign(tf.zeros(mine.shape, mine.dtype))
