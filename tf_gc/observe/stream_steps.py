"""The steps of one stream: how they are built, and what was measured of them."""

import dataclasses
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tf_gc.network.traffic import Traffic
from tf_gc.observe.accounting import Built
from tf_gc.ops.recorder import Recorder, Series
from tf_gc.schedule import Bucket

Array = npt.NDArray[np.float64]


class Counts(NamedTuple):
    """What `Series.STEPS` has of a stream; zeros before its first step."""

    full_precision: int
    compressed: int
    latest: int  # whether the latest one was compressed
    number: int  # of the latest one among the steps of all streams
    number_before: int  # of the one before


class StreamSteps:
    """The steps of some gradients that are reduced together, of one stream."""

    def __init__(self, recorder: Recorder, number: int, ends: Sequence[Any]) -> None:
        self.recorder = recorder
        self.number = number  # for the recorder, which forgets it when this is collected
        # The stream, and the first variable whose gradient is reduced.
        self.ends = [weakref.ref(each) for each in ends]
        self.built: dict[bool, Built] = {}  # by whether the steps compress
        self.told = False  # whether a preliminary verdict on it was logged
        weakref.finalize(self, recorder.forget, number).atexit = False

    def is_alive(self) -> bool:
        """Returns whether stream and variable still exist."""
        return all(end() is not None for end in self.ends)

    @property
    def elements(self) -> int:
        """The number of elements that are compressed."""
        ways = self.built.values()
        return max(sum(bucket.elements for bucket in way.schedule.buckets) for way in ways)

    @property
    def counts(self) -> Counts:
        return Counts(*self.read(Series.STEPS).astype(int).tolist())

    def lasts(self, steps: int) -> bool:
        """Returns whether it has taken part for as many steps of all streams."""
        full, compressed, _, number, before = self.counts
        return (full + compressed) * (number - before) >= steps

    def read(self, series: Series) -> Array:
        """Returns what is kept of these steps in a series of the recorder."""
        return self.recorder.read(self.number, series)

    def now(self) -> Built:
        """Returns how the latest step was built; while a warm-up may last, how later ones are."""
        counts, compressed = self.counts, self.built.get(True)
        lasts = not counts.full_precision or (compressed and compressed.schedule.warm_up)
        if compressed and not counts.compressed and lasts:
            return compressed.now()
        return (self.built.get(bool(counts.latest)) or [*self.built.values()][-1]).now()

    def traffic(self) -> Traffic:
        """Returns what a step sends."""
        built = self.now()
        waits = built.schedule.warm_up and not self.counts.compressed
        return dataclasses.replace(built.traffic, after_warm_up=waits)

    def buckets(self) -> Iterator[tuple[Bucket, int | None, Array | None]]:
        """Yields each bucket, the bytes of a step for it, and what was measured of it, if known."""
        built, kept = self.now(), self.read(Series.MEASURED)[1:]
        buckets = built.schedule.buckets
        nothing = [None] * len(buckets)
        ends = np.cumsum([2 * len(bucket.variables) + 1 for bucket in buckets])
        yield from zip(
            buckets,
            built.sizes if self.counts.compressed else nothing,
            np.split(kept, ends[:-1]) if kept.size else nothing,
            strict=False,
        )
