"""What the workers of a job tell each other, here with the answers of the others given."""

import gc
import hashlib
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tf_gc.cluster import agreement
from tf_gc.cluster.agreement import check_agreement
from tf_gc.cluster.workers import Workers
from tf_gc.params import CompressionParams


def job(*others: list[int]) -> Workers:
    """Returns the workers of a job in which the others pass these numbers."""

    def all_gather(mine: tf.Tensor) -> tf.Tensor:
        assert mine.dtype == tf.int64
        assert mine.shape[0] == 1
        return tf.concat([mine, tf.constant(others, tf.int64)], axis=0)

    return Workers(1 + len(others), is_chief=False, all_gather=all_gather)


def digest(text: str) -> Any:
    return np.frombuffer(hashlib.sha256(text.encode()).digest(), np.int64).tolist()


def test_a_worker_alone_is_the_chief_and_agrees_with_itself() -> None:
    alone = Workers()
    assert alone.count == 1
    assert alone.is_chief
    assert not alone.is_evaluator
    assert alone.gather([3, 4]).tolist() == [[3, 4]]
    assert alone.agree("a text") == 1
    assert alone.largest(5, -2) == [5, -2]
    alone.wait()


def test_an_evaluator_is_alone_and_not_the_chief() -> None:
    assert Workers(is_chief=False).is_evaluator
    assert not job([0]).is_evaluator


def test_gather_returns_the_numbers_of_all_workers() -> None:
    assert job([1, 2], [-3, 1 << 62]).gather([5, 6]).tolist() == [[5, 6], [1, 2], [-3, 1 << 62]]


@pytest.mark.parametrize(
    ("others", "different"), [(["a", "a"], 1), (["a", "b"], 2), (["", "ab"], 3)]
)
def test_agree_counts_the_different_texts(others: list[str], different: int) -> None:
    assert job(*map(digest, others)).agree("a") == different


@pytest.mark.parametrize("length", [1, 1000])
def test_workers_compare_all_of_their_params(length: int) -> None:
    """Also what a description that is too long to be sent says at its end."""

    def params(last: str) -> CompressionParams:
        return tf_gc.TwoBit(exclude=["x" * length, last])

    sent: list[Any] = []

    def with_other(row: Any) -> Workers:
        def all_gather(mine: tf.Tensor) -> tf.Tensor:
            sent.append(mine.numpy().tolist()[0])
            return tf.concat([mine, tf.constant([row or sent[0]], tf.int64)], axis=0)

        return Workers(2, is_chief=False, all_gather=all_gather)

    check_agreement(params("a"), {}, with_other(None))
    check_agreement(params("a"), {}, with_other(sent[0]))
    with pytest.raises(ValueError, match="in different ways"):
        check_agreement(params("b"), {}, with_other(sent[0]))


def agreed() -> Workers:
    """Returns two workers that use TwoBit; the other one repeats what it has said first."""
    rows: list[Any] = []

    def all_gather(mine: tf.Tensor) -> tf.Tensor:
        rows.append(mine)
        return tf.concat([mine, rows[0]], axis=0)

    workers = Workers(2, is_chief=False, all_gather=all_gather)
    check_agreement(tf_gc.TwoBit(), {"clip_after_sum": False}, workers)
    return workers


@pytest.mark.parametrize("version", ["wire_version", "compact_version"])
def test_workers_compare_the_versions_of_their_wires(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = agreed()
    monkeypatch.setattr(agreement, version, lambda: 99)
    with pytest.raises(ValueError, match=r"the same version of tf_gc(.|\n)* 99"):
        check_agreement(tf_gc.TwoBit(), {"clip_after_sum": False}, workers)


def test_workers_compare_the_arguments_of_their_strategies() -> None:
    workers = agreed()
    with pytest.raises(ValueError, match=r"clip_after_sum=True.*\n.*clip_after_sum=False"):
        check_agreement(tf_gc.TwoBit(), {"clip_after_sum": True}, workers)


def test_largest_takes_each_number_by_itself() -> None:
    assert job([7, 0], [2, 9]).largest(True, 3) == [7, 9]


def test_several_workers_need_a_way_to_gather() -> None:
    with pytest.raises(ValueError, match="2 workers need a way"):
        Workers(2)


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
        strategy.workers.wait()
        references = [weakref.ref(strategy), weakref.ref(strategy.extended)]
        del strategy
        assert [reference() for reference in references] == [None, None]
    finally:
        gc.enable()
