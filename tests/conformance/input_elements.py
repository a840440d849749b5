"""What the elements of a distributed dataset may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.conformance.inputs import BATCH, numbers
from tests.conformance.promise import local, promise

Strategy = tf.distribute.Strategy

COUNT = 13  # so that the last batch is a partial one
TOTAL = sum(range(COUNT))


def total(strategy: Strategy, dataset: tf.data.Dataset, of_part: Any) -> float:
    """Returns the sum of what a function gives for each replica's part of each batch."""

    @tf.function
    def step(batch: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(of_part, args=(batch,)), axis=None)

    distributed = strategy.experimental_distribute_dataset(dataset)
    return sum(float(step(batch)) for batch in distributed)


def as_float(x: Any) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(x, tf.float32))


@promise()
def elements_may_be_structures(strategy: Strategy) -> None:
    dataset = numbers(COUNT).map(lambda x: ({"a": x, "b": (x, 2 * x)}, -x))

    def of_part(batch: Any) -> Any:
        features, labels = batch
        assert set(features) == {"a", "b"}
        return as_float(features["a"]) + as_float(features["b"][1]) + as_float(labels)

    assert total(strategy, dataset, of_part) == 2 * TOTAL


@promise()
def elements_may_be_named_tuples_and_strings(strategy: Strategy) -> None:
    dataset = numbers(COUNT).map(lambda x: (tf.strings.as_string(x), tf.ones_like(x)))

    def of_part(batch: Any) -> Any:
        text, ones = batch
        return as_float(tf.strings.to_number(text)) + as_float(ones)

    assert total(strategy, dataset, of_part) == TOTAL + COUNT


@promise()
def elements_may_be_ragged(strategy: Strategy) -> None:
    dataset = numbers(COUNT).map(lambda x: tf.RaggedTensor.from_row_lengths(x, tf.ones_like(x)))

    def of_part(batch: tf.RaggedTensor) -> Any:
        assert isinstance(batch, tf.RaggedTensor)
        return as_float(batch.values) + as_float(batch.nrows())

    assert total(strategy, dataset, of_part) == TOTAL + COUNT


@promise()
def elements_may_be_sparse(strategy: Strategy) -> None:
    # TensorFlow cannot split a sparse batch into parts of which one is empty.
    dataset = numbers(2 * BATCH).map(lambda x: tf.sparse.from_dense(tf.stack([x, -2 * x], axis=1)))

    def of_part(batch: tf.SparseTensor) -> Any:
        assert isinstance(batch, tf.SparseTensor)
        return as_float(tf.sparse.reduce_sum(batch))

    assert total(strategy, dataset, of_part) == -sum(range(2 * BATCH))


@promise()
def a_ragged_batch_may_be_iterated_over_in_a_function(strategy: Strategy) -> None:
    dataset = numbers(COUNT).map(lambda x: tf.RaggedTensor.from_row_lengths(x, tf.ones_like(x)))
    distributed = strategy.experimental_distribute_dataset(dataset)

    @tf.function
    def loop(distributed: Any) -> Any:
        result = 0.0
        for batch in distributed:
            part = strategy.run(lambda mine: as_float(mine.values), args=(batch,))
            result += strategy.reduce("SUM", part, axis=None)
        return result

    assert loop(distributed) == TOTAL


@promise()
def a_replica_without_elements_gets_an_empty_part_of_the_same_shape(strategy: Strategy) -> None:
    """The second batch has one element, for one replica."""
    dataset = numbers(BATCH + 1).map(lambda x: tf.ones([tf.size(x), 3]))
    *_, last = strategy.experimental_distribute_dataset(dataset)
    rows = 0
    for part in local(strategy, last):
        assert part.shape in ((0, 3), (1, 3))
        rows += len(part)
    everyone = strategy.gather(last, axis=0)
    assert everyone.shape == [1, 3]
    assert rows <= 1
    mean = strategy.reduce("MEAN", last, axis=0)
    np.testing.assert_array_equal(mean, [1, 1, 1])
