"""Iterators of distributed datasets can be deleted at any time."""

import itertools
import time
from typing import Any

import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.multiworker import cluster
from tf_gc.strategies.compressed_strategy import _owned as with_a_rewrite


def delete_iterators(workers: int) -> None:
    """Deletes iterators of a dataset without rewrites, as Keras has it for NumPy arrays.

    Under the stock strategies the first or second iterator ends the process by a signal.
    """
    strategy: Any = (
        tf_gc.CompressedMirroredStrategy(["CPU:0", "CPU:1"])
        if workers == 1
        else tf_gc.CompressedMultiWorkerMirroredStrategy()
    )
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = tf.data.Dataset.range(10**10).batch(200_000).with_options(options)
    for distribute in [
        lambda: strategy.distribute_datasets_from_function(lambda context: dataset),
        lambda: strategy.experimental_distribute_dataset(dataset),
    ] * 2:
        iterator = iter(distribute())
        next(iterator)
        time.sleep(0.02)  # lets the iterator's thread read ahead
        del iterator


@pytest.mark.multiworker
@cases("workers", 2, 1)
def test_deleting_an_iterator_does_not_end_the_process(workers: int) -> None:
    configs = ["{}"] if workers == 1 else cluster.tf_configs(workers)
    cluster.run(delete_iterators, workers, configs=configs, devices=2)


def test_a_rewrite_is_added_only_where_there_is_none() -> None:
    for default, chosen in itertools.product((None, True, False), repeat=2):
        options = tf.data.Options()
        options.deterministic = True
        if default is not None:
            options.experimental_optimization.apply_default_optimizations = default
        if chosen is not None:
            options.experimental_optimization.noop_elimination = chosen
        found = with_a_rewrite(tf.data.Dataset.range(3).with_options(options)).options()
        added = default is False and chosen is None
        assert found.experimental_optimization.noop_elimination is (True if added else chosen)
        assert found.experimental_optimization.apply_default_optimizations is default
        assert found.deterministic
