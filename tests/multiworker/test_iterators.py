"""Iterators of distributed datasets can be deleted at any time."""

import itertools
import os
import time
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.fork_server import FORK_SERVER, Task
from tests.multiworker import cluster
from tf_gc.strategies.compressed_strategy import OwnsDatasets


def delete_iterators(workers: str) -> None:
    """Deletes iterators of a dataset without rewrites, as Keras has it for NumPy arrays.

    Under the stock strategies the first or second iterator ends the process by a signal.
    """
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    strategy: Any = (
        tf_gc.CompressedMirroredStrategy(["CPU:0", "CPU:1"])
        if workers == "1"
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
def test_deleting_an_iterator_does_not_end_the_process(tmp_path: Path, workers: int) -> None:
    configs = ["{}"] if workers == 1 else cluster.tf_configs(workers)
    name, log = f"{__name__}:{delete_iterators.__name__}", str(tmp_path / "log")
    ended = FORK_SERVER.run(
        [Task(name, [str(workers)], {**os.environ, "TF_CONFIG": each}, log) for each in configs]
    )
    assert ended == ([0] * workers, False), (tmp_path / "log").read_text()


class _Stock:
    def experimental_distribute_dataset(self, dataset: Any, options: None) -> Any:
        return dataset


class _Ours(OwnsDatasets, _Stock):
    pass


def test_a_rewrite_is_added_only_where_there_is_none() -> None:
    for default, chosen in itertools.product((None, True, False), repeat=2):
        options = tf.data.Options()
        options.deterministic = True
        if default is not None:
            options.experimental_optimization.apply_default_optimizations = default
        if chosen is not None:
            options.experimental_optimization.noop_elimination = chosen
        dataset = tf.data.Dataset.range(3).with_options(options)
        found = _Ours().experimental_distribute_dataset(dataset).options()
        added = default is False and chosen is None
        assert found.experimental_optimization.noop_elimination is (True if added else chosen)
        assert found.experimental_optimization.apply_default_optimizations is default
        assert found.deterministic
