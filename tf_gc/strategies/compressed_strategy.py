"""The common part of the compressed strategies."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tf_gc.cluster.workers import Workers
from tf_gc.keras.strategy import KerasStrategy
from tf_gc.observe.measurement import Measurement
from tf_gc.params import CompressionParams
from tf_gc.params.arguments import check
from tf_gc.reducers.reducer import Sender, Spec
from tf_gc.steps.compression_state import CompressionState
from tf_gc.strategies.compressed_all_reduce import CompressedAllReduce, Observed
from tf_gc.strategies.layer_state import LayerState


def refuse_params(name: str, value: object) -> None:
    """Raises TypeError if the argument of this name got `compression_params`."""
    if isinstance(value, CompressionParams | Mapping):
        raise TypeError(f"{name} got {value!r}: give it by name: compression_params=...")


class OwnsDatasets:
    """Mixin of strategies whose iterators own the datasets that they read.

    The threads of TensorFlow's iterator over several devices read a dataset that its destructor has
    freed already, unless a rewrite has made a dataset of its own. Keras turns rewrites off for
    NumPy arrays, and deletes an iterator in each `fit` and `evaluate`.
    """

    def experimental_distribute_dataset(
        self, dataset: tf.data.Dataset, options: tf.distribute.InputOptions | None = None
    ) -> tf.distribute.DistributedDataset:
        return super().experimental_distribute_dataset(_owned(dataset), options)  # type: ignore[misc]

    def distribute_datasets_from_function(
        self,
        dataset_fn: Callable[[tf.distribute.InputContext], tf.data.Dataset],
        options: tf.distribute.InputOptions | None = None,
    ) -> tf.distribute.DistributedDataset:
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


class CompressedStrategy(Observed, OwnsDatasets, KerasStrategy):
    """Mixin of strategies whose `extended` has a `compressed_all_reduce` and `workers`."""

    def _set_options(
        self, params: CompressionParams, average_layer_state: Any, clip_after_sum: Any
    ) -> None:
        words = "average_layer_state must be None, True or False"
        check(isinstance(average_layer_state, bool | None), words, average_layer_state)
        words = "clip_after_sum must be True or False"
        check(isinstance(clip_after_sum, bool), words, clip_after_sum)
        averages = bool(params.specs()) if average_layer_state is None else average_layer_state
        self.layer_state = LayerState() if averages else None
        self.clip_after_sum = clip_after_sum

    @property
    def compression_params(self) -> CompressionParams:  # type: ignore[override]
        """The params, which say what is compressed and how, as a value, even if given as a dict."""
        return self._all_reduce.compression_params

    @property
    def compression_state(self) -> CompressionState:
        """The residuals; trackable, so it can go into a `tf.train.Checkpoint`."""
        return self._all_reduce.compression_state

    @property
    def workers(self) -> Workers:
        """The workers of the job, and what they can tell each other."""
        return self.extended.workers

    @property
    def senders(self) -> Mapping[Spec, Sender | str]:
        return self._all_reduce.senders

    @property
    def _measurement(self) -> Measurement:  # type: ignore[override]
        return self._all_reduce._measurement

    @property
    def _all_reduce(self) -> CompressedAllReduce:
        return self.extended.compressed_all_reduce
