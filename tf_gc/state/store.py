"""The store: what replicas keep between steps, and how checkpoints hold it."""

import gc
import itertools
import json
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_gc import _compat
from tf_gc.state.book import Book, Entry, Owner, Saved
from tf_gc.state.seat import Array, Seat, Slot, assign
from tf_gc.state.stream import Stream

# An argument of all variables that tf_gc makes in a step. If the first trace of a `tf.function`
# makes variables, even in an `init_scope`, TensorFlow traces the function a second time in order to
# lift the variables out of it. That would double the work until the first step, and these variables
# are made outside of the function anyway.
NOT_LIFTED = {"experimental_enable_variable_lifting": False}


class Zeros:
    """An initial value that is the same wherever it is made, so that no worker has to send it.

    Workers of a stock strategy broadcast the initial value of each variable that is made under it.
    """

    def __init__(self, shape: tf.TensorShape) -> None:
        self._shape = shape

    def __call__(self) -> tf.Tensor:
        """Returns float32 zeros of the shape."""
        return tf.zeros(self._shape)


class Store(tf.Module):
    """What streams keep for variables, by slot.

    A value is made, with zeros, when a stream first asks for it. It ends with its stream or its
    variable, whichever ends first. Trackable: a checkpoint holds all values. Those that it has for
    streams or variables that do not exist yet wait for them, and further checkpoints hold what
    waits.
    """

    def __init__(self, slots: Iterable[Slot], name: str) -> None:
        """Initializes the object.

        Args:
          slots: all that is kept.
          name: the name of the module.
        """
        super().__init__(name=name)
        # A checkpoint holds a module for each slot, and in it the seats by their keys. A key is the
        # variable's name and, if that name occurs again, a number.
        for slot in slots:
            setattr(self, _module_name(slot.name), tf.Module(name=f"{slot.name}s"))
        self._saved_keys = _Layout(self)
        self._book = Book(_Drop(self))

    def value(self, slot: Slot, stream: Stream, variable: Any) -> Any:
        """Returns a distributed variable: what a stream keeps for a variable.

        Args:
          slot: which of the things that are kept.
          stream: whose gradient it is.
          variable: the distributed variable whose gradient is reduced.
        """
        with self._book.held():
            entry = self._book.find(slot.name, stream, variable)
            return (entry or self._create(slot, stream, variable)).value

    def notes(self, stream: Stream, variable: Any) -> dict[Any, Any]:
        """Returns what is remembered of a stream and a variable but not saved.

        The caller fills it.

        Args:
          stream: as in `value`.
          variable: as in `value`.
        """
        with self._book.held():
            self._meet(stream)
            self._book.owner(stream, variable)
            return self._book.notes.setdefault((id(stream), id(variable)), {})

    def has(self, slot: Slot, stream: Stream, variable: Any) -> bool:
        """Returns whether a value exists, or waits for this stream and variable."""
        with self._book.held():
            self._meet(stream)
            if self._book.find(slot.name, stream, variable) is not None:
                return True
            return self._book.waiting(slot.name, self._book.owner(stream, variable)) is not None

    def values(self, slot: Slot) -> list[Any]:
        """Returns the values of all streams and variables."""
        return [entry.value for entry in self.entries() if entry.slot == slot.name]

    def entries(self, variable: Any = None) -> list[Entry]:
        """Returns the entries of a variable, or all of them, the oldest first."""
        with self._book.held():
            if variable is not None:
                return self._book.of_variable(variable)
            return list(self._book.entries.values())

    def saved(self, variable: Any = None) -> list[Saved]:
        """Returns what was restored of a variable, or all of it."""
        with self._book.held():
            if variable is None:
                return list(self._book.saved)
            mine = self._book.owner(Stream(""), variable)
            return [saved for saved in self._book.saved if saved.owner.shares(mine)]

    def owner(self, stream_name: str | None, variable: Any) -> Owner:
        """Returns the owner of what a stream of some name keeps for a variable."""
        with self._book.held():
            mine = self._book.owner(Stream(""), variable)
        return Owner(mine.variable, mine.number, stream_name)

    def restore(self, saved: Sequence[Saved]) -> None:
        """Replaces all values by those of a checkpoint or a backup; all others become zero.

        Args:
          saved: the values. One without a value arrives later.
        """
        self._start_over(keep={(each.slot, each.key) for each in saved})
        with self._book.held():
            self._book.restore(saved)
        for each in saved:
            if each.value is not None:
                _put(each)

    def arrived(self, slot: str, key: str, value: Array) -> None:
        """Takes what a checkpoint holds by a key, after the layout of that checkpoint."""
        for saved in self.saved():
            if (saved.slot, saved.key) == (slot, key):
                saved.value = value
                _put(saved)
                seat = vars(getattr(self, _module_name(slot))).get(key)
                if saved.waits and seat is not None and seat.variable is not None:
                    # Somebody else has the key now, so what waits gets another one.
                    saved.key = self._free_key(slot, key)
                    self._add_seat(slot, saved.key).value = value

    def reset(self) -> None:
        """Sets all values to zero, and drops those that wait."""
        self._start_over(keep=set())

    def _start_over(self, keep: set[tuple[str, str]]) -> None:
        """Does what `reset` does, but leaves the seats of these slots and keys where they are."""
        for value in self.variables:
            for component in value.values:
                component.assign(tf.zeros(component.shape))
        with self._book.held():
            waiting = [saved for saved in self._book.saved if saved.waits]
            self._book.saved = []
        for saved in waiting:
            if (saved.slot, saved.key) not in keep:
                self._leave_seat(saved.slot, saved.key)

    @property
    def variables(self) -> tuple[Any, ...]:
        """All values that exist."""
        return tuple(entry.value for entry in self.entries())

    def _create(self, slot: Slot, stream: Stream, variable: Any) -> Entry:
        self._meet(stream)
        book = self._book
        owner = book.owner(stream, variable)
        waiting = book.waiting(slot.name, owner)
        key = waiting.key if waiting is not None else ""
        key = key or self._free_key(slot.name, f"{owner.variable}.{slot.name}")
        value = self._make(slot, variable, key)
        self._leave_seat(slot.name, key)
        self._add_seat(slot.name, key, value)
        entry = Entry(slot.name, key, owner, id(stream), id(variable), value)
        book.add(entry)
        if waiting is not None:
            _put(waiting)
        return entry

    def _make(self, slot: Slot, variable: Any, name: str) -> Any:
        """Returns what is kept for a variable: a new distributed variable of zeros."""
        parts = slot.size is None
        with tf.init_scope(), variable.distribute_strategy.scope():
            return tf.Variable(
                Zeros(variable.shape if parts else tf.TensorShape([slot.size])),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ
                if parts
                else tf.VariableSynchronization.AUTO,
                aggregation=tf.VariableAggregation.SUM
                if parts
                else tf.VariableAggregation.ONLY_FIRST_REPLICA,
                name=name,
                **NOT_LIFTED,
            )

    def _meet(self, stream: Stream) -> None:
        if self._book.is_new(stream) and self._book.knows_variables:
            # A model that has ended, and the old optimizer of one that is compiled again, are in
            # cycles. Names and numbers in checkpoints must not depend on when they are collected.
            gc.collect()
            self._book.forget_ended()

    def _trackable_children(self, *args: Any, **kwargs: Any) -> Any:
        # To read a sum is a collective. So all workers have to save the same values, whatever
        # garbage each of them has collected by itself.
        gc.collect()
        with self._book.held():
            self._book.forget_ended()
        return super()._trackable_children(*args, **kwargs)

    def layout(self) -> str:
        """Returns in JSON whose values a checkpoint holds, and by which keys."""
        with self._book.held():
            rows = [(e.slot, e.key, e.owner) for e in self._book.entries.values()]
            rows += [(s.slot, s.key, s.owner) for s in self._book.saved if s.waits and s.key]
        return json.dumps(
            {"values": [[slot, key, o.variable, o.number, o.stream] for slot, key, o in rows]}
        )

    def restore_layout(self, text: str | bytes) -> None:
        """Notes whose values a checkpoint holds, and reads those that TensorFlow would not read."""
        saved = _read_layout(json.loads(text))
        self.restore(saved)
        for each in saved:
            module = getattr(self, _module_name(each.slot), None)
            # What has a seat is restored with it. A new seat is restored when it is made.
            if module is None:
                continue
            if not hasattr(module, each.key):
                self._add_seat(each.slot, each.key)
            if not each.waits and getattr(module, each.key).variable is None:
                self._leave_seat(each.slot, each.key)

    def _add_seat(self, slot: str, key: str, variable: Any = None) -> Seat:
        seat = Seat(self, slot, key, variable)
        # A save that is under way, of which this thread knows nothing, goes without it.
        for object_map in self._saved_keys.object_maps.values():
            object_map[seat] = tf.Module()
        setattr(getattr(self, _module_name(slot)), key, seat)
        return seat

    def seats(self) -> list[Seat]:
        """Returns all seats that a checkpoint holds now."""
        modules = [m for m in self._trackable_children().values() if isinstance(m, tf.Module)]
        return [seat for m in modules for seat in list(vars(m).values()) if isinstance(seat, Seat)]

    def _free_key(self, slot: str, key: str) -> str:
        """Returns the key, with a number if it is taken."""
        module = getattr(self, _module_name(slot))
        keys = itertools.chain([key], (f"{key}_{number}" for number in itertools.count(1)))
        return next(each for each in keys if not hasattr(module, each))

    def _leave_seat(self, slot: str, key: str) -> None:
        module = getattr(self, _module_name(slot))
        if key and hasattr(module, key):
            delattr(module, key)


class _Drop:
    """Removes the seat of an entry that has ended."""

    def __init__(self, store: Store) -> None:
        self._store = weakref.ref(store)

    def __call__(self, entry: Entry) -> None:
        store = self._store()
        if store is not None:
            store._leave_seat(entry.slot, entry.key)


class _Layout(tf.train.experimental.PythonState):
    """Saves whose values a checkpoint holds, and notices when one is restored.

    TensorFlow saves asynchronously by writing, in another thread, copies in place of what a
    checkpoint holds. It asks once for copies of what exists at the first save, and later updates
    them by a function that it traces once. All of that goes through here, so that at each save
    all values are copied that exist then, together with the layout.

    Attributes:
      object_maps: those of all checkpoints that were saved asynchronously, by their `id`: from
        what a checkpoint holds to copies.
    """

    def __init__(self, store: Store) -> None:
        self._store = weakref.ref(store)
        self.object_maps: dict[int, Any] = {}

    @tf.autograph.experimental.do_not_convert
    def _copy_trackable_to_cpu(self, object_map: Any) -> None:
        self.object_maps[id(object_map)] = object_map
        _compat.at_each_call(lambda: self._copy(object_map))

    def _copy(self, object_map: Any) -> None:
        store = self._store()
        if store is not None:
            object_map.update((seat, seat.copied()) for seat in store.seats())
            object_map[self] = _CopiedLayout(store.layout())

    def serialize(self) -> str:
        store = self._store()
        return json.dumps({"values": []}) if store is None else store.layout()

    def deserialize(self, string_value: str | bytes) -> None:
        store = self._store()
        if store is not None:
            store.restore_layout(string_value)


class _CopiedLayout(tf.train.experimental.PythonState):
    """The layout of the moment of an asynchronous save."""

    def __init__(self, text: str) -> None:
        self._text = text

    def serialize(self) -> str:
        return self._text

    def deserialize(self, string_value: str | bytes) -> None:
        """Does nothing: nobody restores a copy."""


def _module_name(slot: str) -> str:
    return f"_{slot}s"


def _read_layout(layout: Any) -> list[Saved]:
    """Returns what a checkpoint holds, whichever version of tf_gc has saved it."""
    if isinstance(layout, dict) and "values" in layout:
        return [
            Saved(slot, Owner(name, number, stream), key)
            for slot, key, name, number, stream in layout["values"]
        ]
    # Before version 0.2 a variable had one value for all streams. At first there were only
    # residuals.
    of_slots = layout if isinstance(layout, dict) else {"residuals": layout}
    saved = []
    for slots, keys in of_slots.items():
        for key in keys:
            name, _, number = key.rpartition(".residual")
            owner = Owner(name, int(number.removeprefix("_") or 0), None)
            saved.append(Saved(slots.removesuffix("s"), owner, key))
    return saved


def _put(saved: Saved) -> None:
    """Gives a value to the entry whose it is, if it has the shape of that entry."""
    if saved.entry is None or saved.value is None:
        return
    saved.fits = tuple(saved.value.shape) == tuple(saved.entry.value.shape)
    if saved.fits:
        with tf.init_scope():
            assign(saved.entry.value, saved.value)
    saved.value = np.zeros(0, np.float32)  # it is large, and not needed any more
