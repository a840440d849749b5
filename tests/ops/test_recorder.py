"""The recorder: what the steps of a graph write, and Python reads."""

import gc
import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_gc import ops

FULL, COMPRESSED = False, True


def notes(recorder: ops.Recorder, *steps: tuple[int, bool]) -> list[bool]:
    """Notes steps of (reduction, whether compressed); returns which of them are to be measured."""
    return [bool(recorder.note_step(*step)) for step in steps]


def counts(recorder: ops.Recorder, reduction: int) -> tuple[int, ...]:
    series = (ops.Series.FULL_PRECISION, ops.Series.COMPRESSED, ops.Series.FIRST)
    return tuple(recorder.read(reduction, each).size for each in series)


def test_an_interval_is_between_two_steps_of_one_kind() -> None:
    recorder = ops.Recorder()
    notes(recorder, *[(0, FULL)] * 4, *[(0, COMPRESSED)] * 3, *[(0, FULL)] * 2)
    assert counts(recorder, 0) == (3 + 1, 2, 0)
    assert recorder.read(0, ops.Series.STEPS).tolist()[:3] == [6, 3, 0]
    notes(recorder, *[(0, COMPRESSED)] * 100)
    assert counts(recorder, 0) == (3 + 1, 2 + 99, 64)
    assert counts(recorder, 1) == (0, 0, 0)


def test_models_that_take_turns() -> None:
    recorder = ops.Recorder()
    notes(recorder, *[(0, FULL), (1, FULL)] * 3)
    assert counts(recorder, 0) == counts(recorder, 1) == (2, 0, 0)
    # Now one compresses and the other does not: such steps say nothing of either.
    notes(recorder, *[(0, COMPRESSED), (1, FULL)] * 5)
    assert counts(recorder, 0) == counts(recorder, 1) == (2, 0, 0)
    notes(recorder, *[(0, COMPRESSED), (1, COMPRESSED)] * 3)
    assert counts(recorder, 0) == counts(recorder, 1) == (2, 2, 2)
    recorder.forget(1)
    assert counts(recorder, 1) == (0, 0, 0)


def test_intervals_are_seconds_and_the_latest_are_kept() -> None:
    recorder = ops.Recorder()
    began = time.monotonic()
    notes(recorder, (0, COMPRESSED))
    time.sleep(0.05)
    notes(recorder, (0, COMPRESSED))
    (interval,) = recorder.read(0, ops.Series.COMPRESSED)
    assert 0.05 <= interval <= time.monotonic() - began
    notes(recorder, *[(0, COMPRESSED)] * 255)
    assert recorder.read(0, ops.Series.COMPRESSED)[0] == interval
    notes(recorder, (0, COMPRESSED))
    latest = recorder.read(0, ops.Series.COMPRESSED)
    assert len(latest) == 256
    assert interval not in latest
    assert recorder.read(0, ops.Series.FIRST)[0] == interval


def test_a_trial_has_the_median_of_the_latest_intervals() -> None:
    recorder = ops.Recorder()
    notes(recorder, (0, COMPRESSED), *[(0, FULL)] * 11)
    for _ in range(3):
        time.sleep(0.1)
        notes(recorder, (0, FULL))
    full, compressed = recorder.trial_times(0, 3).numpy()
    never = np.iinfo(np.int64).max
    assert 0.1e9 <= full < compressed == never  # there was one step
    assert recorder.trial_times(7, 3).numpy().tolist() == [never] * 2
    notes(recorder, *[(0, COMPRESSED)] * 2)
    assert recorder.trial_times(0, 3).numpy()[1] < never


def test_some_steps_are_to_be_measured() -> None:
    recorder = ops.Recorder()
    due = notes(recorder, *[(0, FULL)] * 3, *[(0, COMPRESSED)] * 201)
    assert [i for i, measure in enumerate(due) if measure] == [3, 103, 203]
    recorder.measure_every(2)
    assert notes(recorder, *[(1, COMPRESSED)] * 4) == [True, False, True, False]


def test_what_was_measured() -> None:
    recorder = ops.Recorder()
    assert recorder.read(0, ops.Series.MEASURED).size == 0
    notes(recorder, *[(0, COMPRESSED)] * 7)
    recorder.keep(0, tf.constant([1.5, 2.0**40], tf.float64))
    recorder.keep(0, tf.constant([1.0, 3.0**30], tf.float64), of_trial=True)
    assert recorder.read(0, ops.Series.MEASURED).tolist() == [7, 1.5, 2.0**40]
    assert recorder.read(0, ops.Series.TRIAL).tolist() == [1, 3.0**30]
    # The first compressed step after a trial is measured.
    assert notes(recorder, (0, FULL), *[(0, COMPRESSED)] * 2) == [False, True, False]
    assert recorder.read(0, ops.Series.STEPS).tolist()[:3] == [1, 9, 1]


def test_a_function_outlives_its_recorder() -> None:
    recorder = ops.Recorder()
    number = recorder._number
    run = tf.function(lambda owner=recorder: owner.note_step(0, COMPRESSED)).get_concrete_function()
    assert bool(run())
    del recorder
    gc.collect()
    assert not bool(run())  # the second step of what is left of it
    load = ops._loader.load()
    assert not bool(load.tf_gc_note_step(recorder=number, reduction=0, compressed=True))
    load.tf_gc_keep(tf.zeros(3, tf.float64), recorder=number, reduction=0, of_trial=False)


@pytest.mark.parametrize(
    ("codec", "threshold"),
    [("two_bit", 0.5), ("three_bit", "auto"), ("four_bit", "auto"), ("eight_bit", "auto")],
)
def test_codes_that_are_not_zero_are_counted(codec: str, threshold: Any) -> None:
    random = np.random.default_rng(3)
    arrays = [random.standard_normal(shape).astype("f") ** 3 for shape in [(300, 5), (7,), (128,)]]
    arrays[0][17, 2] = np.nan
    gradients = [tf.constant(array) for array in arrays]
    residuals = [tf.Variable(tf.zeros_like(gradient)) for gradient in gradients]
    message = ops.encode(gradients, residuals, codec, threshold)
    decoded = ops.decode(message, gradients, codec, threshold)
    expected = sum(int(np.sum(np.nan_to_num(values) != 0)) for values in decoded)
    assert 0 < expected < 1635
    assert int(ops.count_sent(message, codec, threshold)) == expected
    assert int(ops.count_sent(tf.repeat(message, 3, axis=0), codec, threshold)) == 3 * expected
