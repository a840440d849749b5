"""Distributes datasets so that their iterators can be deleted at any time."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


class OwnsDatasets:
    """Mixin of strategies whose iterators own the datasets that they read.

    The threads of TensorFlow's iterator over several devices read a dataset that the destructor of
    the iterator has freed already, unless a rewrite has made a dataset of the iterator's own. Keras
    turns rewrites off for NumPy arrays, and deletes an iterator in each `fit` and `evaluate`.
    """

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """Distributes a dataset, as `tf.distribute.Strategy.experimental_distribute_dataset`."""
        return super().experimental_distribute_dataset(_owned(dataset), options)  # type: ignore[misc]

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[Any], Any], options: Any = None
    ) -> Any:
        """Distributes datasets, as `tf.distribute.Strategy.distribute_datasets_from_function`."""
        return super().distribute_datasets_from_function(  # type: ignore[misc]
            lambda context: _owned(dataset_fn(context)), options
        )


def _owned(dataset: Any) -> Any:
    """Returns a dataset with one harmless rewrite, if it would otherwise have none."""
    if not isinstance(dataset, tf.data.Dataset):
        return dataset
    wanted = dataset.options().experimental_optimization
    if wanted.apply_default_optimizations is not False or wanted.noop_elimination is not None:
        return dataset
    options = tf.data.Options()
    options.experimental_optimization.noop_elimination = True
    return dataset.with_options(options)
