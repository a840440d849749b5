"""Iterators of distributed datasets can be deleted at any time."""

import os
from pathlib import Path

import pytest
import tensorflow as tf

from tests.cases import cases
from tests.multiworker import cluster
from tests.multiworker.nursery import NURSERY, Task
from tf_gc.strategies.compressed_strategy import OwnsDatasets

DELETE = "tests.multiworker.iterator_scenarios:delete_iterators"


@pytest.mark.multiworker
@cases("workers, how", (2, "by_function"), (2, "of_dataset"), (1, "by_function"), (1, "of_dataset"))
def test_deleting_an_iterator_does_not_end_the_process(
    tmp_path: Path, workers: int, how: str
) -> None:
    kind = "mirrored" if workers == 1 else "multi_worker"
    configs = [""] if workers == 1 else cluster.tf_configs(workers)
    tasks = []
    for i, config in enumerate(configs):
        environment = {**os.environ, "MALLOC_PERTURB_": "165"}
        environment |= {"TF_CONFIG": config} if config else {}
        tasks.append(Task(DELETE, [kind, how], environment, str(tmp_path / f"log{i}"), False))
    codes, late = NURSERY.run(tasks, 600)
    logs = "\n".join((tmp_path / f"log{i}").read_text() for i in range(workers))
    assert (codes, late) == ([0] * workers, False), logs


class _Stock:
    """Returns what it is given."""

    def experimental_distribute_dataset(
        self, dataset: tf.data.Dataset, options: None
    ) -> tf.data.Dataset:
        return dataset


class _Ours(OwnsDatasets, _Stock):
    pass


@pytest.mark.parametrize("default", [None, True, False])
@pytest.mark.parametrize("chosen", [None, True, False])
def test_a_rewrite_is_added_only_where_there_is_none(
    default: bool | None, chosen: bool | None
) -> None:
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
