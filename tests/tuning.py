"""Iterators that take less time to make: untuned, one for an epoch, with functions in common.
Python seldom looks for garbage.
"""

import gc
from typing import Any

import pytest
import tensorflow as tf
from keras.src.backend.tensorflow import trainer
from tensorflow.python.data.ops import dataset_ops, multi_device_iterator_ops
from tensorflow.python.eager import context
from tensorflow.python.ops import gen_dataset_ops


def collect_garbage_rarely() -> None:
    """After each 50,000 new objects, instead of 700: to trace a step makes many, few of which are
    garbage, and a tenth of the time of the tests went into looking.
    """
    gc.set_threshold(50_000)


def turn_off(monkeypatch: pytest.MonkeyPatch) -> None:
    _turn_off_tuning(monkeypatch)
    _turn_off_spare_iterators(monkeypatch)
    _turn_off_tracing(monkeypatch)


def _turn_off_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    """When TensorFlow (2.21) destroys an iterator that is not at its end, it may wait for its
    tuning thread, for up to a minute; Keras leaves those over validation data so. Short epochs take
    half as long again with tuning.
    """
    stock = dataset_ops.DatasetV2._apply_debug_options

    def without_tuning(self: tf.data.Dataset) -> tf.data.Dataset:
        options = tf.data.Options()
        options.autotune.enabled = False
        # Without any rewrite the stock strategies' iterators crash (`OwnsDatasets`).
        options.experimental_optimization.noop_elimination = True
        return stock(self).with_options(options)

    monkeypatch.setattr(dataset_ops.DatasetV2, "_apply_debug_options", without_tuning)


def _turn_off_spare_iterators(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of an epoch Keras (3.15) makes an iterator, and unless it was told how many steps
    an epoch has, the next epoch makes its own. To make one takes longer than a short epoch's steps.
    """
    stock = trainer.TFEpochIterator._get_iterator

    def but_no_spare_one(self: Any) -> Any:
        in_use = self._current_iterator is not None  # it is not where an epoch ended early
        at_end = in_use and self._num_batches and self._steps_seen >= self._num_batches
        return () if at_end and self.steps_per_epoch is None else stock(self)

    monkeypatch.setattr(trainer.TFEpochIterator, "_get_iterator", but_no_spare_one)


_PARTS = ("init", "next", "finalize")
_traced: dict[Any, dict[str, Any]] = {}


def _turn_off_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each of its devices an iterator traces six functions, and wraps them in a dataset twice:
    a tenth of the time of Keras' tests. The functions of a device, for elements of one kind, differ
    in what they capture, which is passed to them, and in nothing else.
    """
    generator = multi_device_iterator_ops._PerDeviceGenerator
    stock = generator.__init__

    def with_known_functions(self: Any, *arguments: Any, **options: Any) -> None:
        if not tf.executing_eagerly():
            return stock(self, *arguments, **options)
        shard, iterator, incarnation, source, spec = arguments
        key = (shard, context.context().device_name, source.numpy(), repr(spec))
        if key not in _traced:
            stock(self, *arguments, **options)
            _traced[key] = {f"{part}_func": getattr(self, f"_{part}_func") for part in _PARTS}
            captured = [getattr(self, f"_{part}_captured_args") for part in _PARTS]
            assert [len(arguments) for arguments in captured] == [2, 3, 1]
            assert captured[1][1] is incarnation
            assert captured[1][2] is iterator
            return None
        handle = gen_dataset_ops.multi_device_iterator_to_string_handle(iterator)
        self._element_spec, self._name = spec, f"device_generator_{shard}"
        variant = gen_dataset_ops.generator_dataset(
            *([source, handle], [source, incarnation, iterator], [source]),
            **_traced[key],
            **self._flat_structure,
        )
        return dataset_ops.DatasetV2.__init__(self, variant)

    wrap_again = multi_device_iterator_ops._create_device_dataset

    def wrapped_once(made: Any, incarnation: Any, buffer_size: int, slack: bool) -> Any:
        if slack or not tf.executing_eagerly():
            return wrap_again(made, incarnation, buffer_size, slack)
        return made.prefetch(buffer_size, name="device_prefetch") if buffer_size else made

    monkeypatch.setattr(generator, "__init__", with_known_functions)
    monkeypatch.setattr(multi_device_iterator_ops, wrap_again.__name__, wrapped_once)
