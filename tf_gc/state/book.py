"""The book of what is kept: which stream has what for which variable, and what still waits."""

import collections
import contextlib
import dataclasses
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tf_gc.state.seat import Array
from tf_gc.state.stream import Stream


@dataclasses.dataclass(frozen=True)
class Owner:
    """Whose value it is, in the words of a checkpoint.

    Attributes:
      variable: the name of the variable.
      number: its number among the variables of that name, in the order of their first reductions.
      stream: the name of the stream; `None` if an earlier version saved one value for all streams.
    """

    variable: str
    number: int
    stream: str | None

    def shares(self, other: "Owner") -> bool:
        """Whether it is the same variable."""
        return (self.variable, self.number) == (other.variable, other.number)

    def __str__(self) -> str:
        which = f" ({self.number + 1})" if self.number else ""
        return f"{self.variable}{which}" + (f" of {self.stream}" if self.stream else "")


@dataclasses.dataclass
class Entry:
    """What a stream keeps for a variable in a slot.

    Attributes:
      slot: the name of the slot.
      key: the key in the slot, for checkpoints.
      owner: whose it is.
      stream_id: the `id` of the stream.
      variable_id: the `id` of the variable.
      value: a distributed variable.
    """

    slot: str
    key: str
    owner: Owner
    stream_id: int
    variable_id: int
    value: Any


@dataclasses.dataclass(eq=False)
class Saved:
    """A value that is restored.

    Attributes:
      slot: the name of the slot.
      owner: whose it was.
      key: the key in a checkpoint; empty for a value from elsewhere.
      value: `None` until the checkpoint has been read.
      entry: whose it is now; `None` while it waits.
      fits: whether it has the shape of the entry's value.
    """

    slot: str
    owner: Owner
    key: str = ""
    value: Array | None = None
    entry: Entry | None = None
    fits: bool = True

    @property
    def waits(self) -> bool:
        """Whether nobody has asked for it."""
        return self.entry is None


class Book:
    """Entries of living streams and variables.

    All methods are for its holder.

    Attributes:
      entries: by the name of the slot and the ids of stream and variable.
      notes: by the ids of stream and variable, what is remembered but not saved.
      saved: what was restored most recently.
    """

    def __init__(self, drop: Callable[[Entry], None]) -> None:
        """Initializes the object.

        Args:
          drop: is called with each entry that has ended.
        """
        self.entries: dict[tuple[str, int, int], Entry] = {}
        self.notes: dict[tuple[int, int], dict[Any, Any]] = {}
        self.saved: list[Saved] = []
        self._drop = drop
        self._names: dict[int, tuple[str, int]] = {}
        self._streams: set[int] = set()
        self._lock = threading.Lock()
        self._ended: collections.deque[int] = collections.deque()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Holds the book, for models may be traced in several threads."""
        with self._lock:
            self.forget_ended()
            yield

    def forget_ended(self) -> None:
        """Removes the entries of streams and variables that have ended."""
        while self._ended:
            ended = self._ended.popleft()
            self._names.pop(ended, None)
            self._streams.discard(ended)
            for place in [place for place in self.entries if ended in place[1:]]:
                self._drop(self.entries.pop(place))
            for pair in [pair for pair in self.notes if ended in pair]:
                del self.notes[pair]

    @property
    def knows_variables(self) -> bool:
        """Whether any variable has a number."""
        return bool(self._names)

    def owner(self, stream: Stream, variable: Any) -> Owner:
        """Returns the owner of what a stream keeps for a variable."""
        if id(variable) not in self._names:
            name = variable.name.split(":")[0]
            taken = set(self._names.values())
            number = next(n for n in itertools.count() if (name, n) not in taken)
            self._names[id(variable)] = (name, number)
            self._watch(variable)
        return Owner(*self._names[id(variable)], stream.name)

    def find(self, slot: str, stream: Stream, variable: Any) -> Entry | None:
        """Returns what a stream keeps for a variable."""
        return self.entries.get((slot, id(stream), id(variable)))

    def of_variable(self, variable: Any) -> list[Entry]:
        """Returns what all streams keep for a variable, in the order in which they asked."""
        return [entry for entry in self.entries.values() if entry.variable_id == id(variable)]

    def add(self, entry: Entry) -> None:
        """Adds an entry, which gets the value that waits for it."""
        self.entries[entry.slot, entry.stream_id, entry.variable_id] = entry
        saved = self.waiting(entry.slot, entry.owner)
        if saved is not None:
            saved.entry = entry

    def is_new(self, stream: Stream) -> bool:
        """Notes a stream, and returns whether it was not known."""
        if id(stream) in self._streams:
            return False
        self._streams.add(id(stream))
        self._watch(stream)
        return True

    def waiting(self, slot: str, owner: Owner) -> Saved | None:
        """Returns the restored value that an owner would get.

        That is what a stream of its name had, or else what waits longest for its variable: Keras
        numbers the names of optimizers as a process happens to make them.
        """
        found = [s for s in self.saved if s.waits and s.slot == slot and s.owner.shares(owner)]
        return next((s for s in found if s.owner == owner), found[0] if found else None)

    def restore(self, saved: Sequence[Saved]) -> None:
        """Notes what is being restored: living entries get their own first, then what is left."""
        self.saved = list(saved)
        without = list(self.entries.values())
        for exactly in (True, False):
            for entry in list(without):
                mine = self.waiting(entry.slot, entry.owner)
                if mine is not None and (not exactly or mine.owner == entry.owner):
                    mine.entry = entry
                    without.remove(entry)

    def _watch(self, ends: Any) -> None:
        weakref.finalize(ends, _note_end, weakref.ref(self), id(ends)).atexit = False

    def note_end(self, ended: int) -> None:
        """Notes that a stream or variable has ended; anybody may call this at any time.

        Python collects garbage in the middle of anything, also while this thread holds the book.
        Whoever holds it removes the entries later.
        """
        self._ended.append(ended)
        if self._lock.acquire(blocking=False):
            try:
                self.forget_ended()
            finally:
                self._lock.release()


def _note_end(book: "weakref.ref[Book]", ended: int) -> None:
    alive = book()
    if alive is not None:
        alive.note_end(ended)
