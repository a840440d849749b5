"""Workers of a job that tell each other what they do, here as threads of one process."""

import concurrent.futures
import gc
import re
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tensorflow as tf

import tf_gc
from tf_gc.cluster import workers as workers_module
from tf_gc.cluster.workers import Workers, check_agreement
from tf_gc.params import CompressionParams


def together(*parts: Callable[[Workers], Any]) -> list[Any]:
    """Runs what each worker of a job does, in a thread; returns its result or its error."""
    rows: dict[int, tf.Tensor] = {}
    barrier = threading.Barrier(len(parts), timeout=60)

    def run(index: int) -> Any:
        def all_gather(mine: tf.Tensor) -> tf.Tensor:
            assert mine.dtype == tf.int64
            rows[index] = mine
            barrier.wait()
            everyones = tf.concat([rows[i] for i in range(len(parts))], axis=0)
            barrier.wait()
            return everyones

        try:
            return parts[index](Workers(len(parts), is_chief=index == 0, all_gather=all_gather))
        except ValueError as error:
            return str(error)

    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(run, range(len(parts))))


def test_a_worker_alone_is_the_chief_or_an_evaluator_and_agrees_with_itself() -> None:
    alone = Workers()
    assert (alone.count, alone.is_chief, alone.is_evaluator) == (1, True, False)
    assert alone.meet("trains", 3, 4).tolist() == [[3, 4]]
    assert alone.largest("trains", 5, -2) == [5, -2]
    alone.meet("ends")
    assert Workers(is_chief=False).is_evaluator
    assert not Workers(2, is_chief=False, all_gather=tf.identity).is_evaluator


def test_workers_that_meet_learn_the_numbers_of_all_and_notes_may_differ() -> None:
    numbers = [[5, 6], [1, 2], [-3, 1 << 62]]

    def learn(workers: Workers, mine: list[int]) -> Any:
        found = workers.meet("a", *mine, details=str(mine))
        return found.tolist(), len(workers.meet("b")), workers.largest("c", *mine)

    results = together(*(lambda workers, n=n: learn(workers, n) for n in numbers))
    assert results == [(numbers, 3, [5, 1 << 62])] * 3


def test_workers_that_come_to_different_calls_say_to_which() -> None:
    first, second = together(
        lambda workers: workers.meet("trains", 1, 2),
        lambda workers: workers.meet("ends", details=", of its own", error="they differ"),
    )
    said = "\n  worker 0: trains\n  worker 1: ends, of its own"
    assert re.search(f"different things.*:{said}$", first)
    assert second == f"they differ:{said}"


def agreed(*params: CompressionParams, clip_after_sum: Sequence[bool] = (False, False)) -> Any:
    """Returns what comes of it if workers have these params and arguments: `None`, or an error."""
    return together(
        *(
            lambda workers, p=p, c=c: check_agreement(p, {"clip_after_sum": c}, workers)
            for p, c in zip(params, clip_after_sum, strict=True)
        )
    )


@pytest.mark.parametrize("length", [1, 1000])
def test_workers_compare_all_of_their_params(length: int) -> None:
    """Also what a description that is too long to be sent says at its end."""
    a, b = (tf_gc.TwoBit(exclude=["x" * length, last]) for last in "ab")
    assert agreed(a, a) == [None, None]
    for error in agreed(a, b):
        assert "in different ways" in error


@pytest.mark.parametrize("version", ["wire_version", "compact_version"])
def test_workers_compare_the_versions_of_their_wires(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = iter([1, 99])
    monkeypatch.setattr(workers_module, version, lambda: next(versions))
    for error in agreed(tf_gc.TwoBit(), tf_gc.TwoBit()):
        assert re.search(r"the same version of tf_gc(.|\n)* 99", error)


def test_workers_compare_the_arguments_of_their_strategies() -> None:
    for error in agreed(tf_gc.TwoBit(), tf_gc.TwoBit(), clip_after_sum=[True, False]):
        assert re.search(r"clip_after_sum=True.*\n.*clip_after_sum=False", error)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf_gc.CompressedMirroredStrategy(["CPU:0"]),
        tf_gc.CompressedMultiWorkerMirroredStrategy,
    ],
    ids=["mirrored", "multi_worker"],
)
def test_they_do_not_keep_their_strategy_alive(make: Callable[[], Any]) -> None:
    gc.disable()
    try:
        strategy = make()
        strategy.workers.meet("waits")
        references = [weakref.ref(strategy), weakref.ref(strategy.extended)]
        del strategy
        assert [reference() for reference in references] == [None, None]
    finally:
        gc.enable()
