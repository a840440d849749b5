"""The rule of a trial: whose turn it is, when it ends, and what counts as fast."""

import numpy as np
import tensorflow as tf

from tests.cases import cases
from tf_gc import ops
from tf_gc.steps import trial
from tf_gc.steps.trial import ROUNDS, TURN, Trial, fastest

NAMES = ("a", "b", "c")


def run(rule: Trial, state: tf.Tensor, steps: int, chosen: int = 0) -> tuple[list[int], tf.Tensor]:
    """Makes steps; returns whose turn each was, and the state."""
    turns = []
    for _ in range(steps):
        turns.append(int(rule.current(state)))
        if bool(rule.is_on(state)):
            choice = chosen if bool(rule.is_last(state)) else 0
            state = rule.after_step(state, tf.constant(choice, tf.int64))
    return turns, state


@cases("chosen", 2, 0, 1)
def test_candidates_take_turns_and_one_stays(chosen: int) -> None:
    rule = Trial(NAMES, replicas=2)
    turns, state = run(rule, tf.zeros(trial.SIZE), rule.steps + 20, chosen)
    expected = [i for _ in range(ROUNDS) for i in range(len(NAMES)) for _ in range(TURN)]
    assert turns == [*expected, *[chosen] * 20]
    assert rule.steps == len(expected)
    assert not bool(rule.is_on(state))


def test_it_knows_its_last_step_and_the_one_after_it() -> None:
    rule = Trial(NAMES, replicas=2)
    state = tf.zeros(trial.SIZE)
    last, just_ended = [], []
    for step in range(rule.steps + 5):
        last += [step] if bool(rule.is_last(state)) else []
        just_ended += [step] if bool(rule.has_just_ended(state)) else []
        if bool(rule.is_on(state)):
            state = rule.after_step(state, tf.constant(1, tf.int64))
    assert (last, just_ended) == ([rule.steps - 1], [rule.steps])


@cases("other", Trial(("a", "b", "d"), 2), Trial(NAMES, 4), Trial(("a", "b"), 2))
def test_the_state_of_another_trial_counts_for_nothing(other: Trial) -> None:
    rule = Trial(NAMES, replicas=2)
    _, ended = run(rule, tf.zeros(trial.SIZE), rule.steps + 1, chosen=2)
    assert int(rule.current(ended)) == 2
    assert int(other.current(ended)) == 0
    turns, _ = run(other, ended, other.steps + 2, chosen=1)
    assert turns == run(other, tf.zeros(trial.SIZE), other.steps + 2, chosen=1)[0]


def test_the_slowest_worker_decides() -> None:
    times = tf.constant([[5, 3, 4], [5, 9, 6]], tf.int64)
    chosen, slowest = fastest(times)
    assert int(chosen) == 0
    assert slowest.numpy().tolist() == [5, 9, 6]


def test_without_all_times_the_trial_begins_anew() -> None:
    times = tf.constant([[5, 3, 4], [5, tf.int64.max, 6]], tf.int64)
    chosen, _ = fastest(times)
    assert int(chosen) == trial.UNDECIDED
    rule = Trial(NAMES, replicas=2)
    turns, _ = run(rule, tf.zeros(trial.SIZE), 2 * rule.steps, trial.UNDECIDED)
    assert turns == 2 * run(rule, tf.zeros(trial.SIZE), rule.steps)[0]


def test_times_are_medians_of_the_latest_steps_within_turns() -> None:
    recorder = ops.Recorder()
    for candidate in (0, 1, 1, 1, 0, 0):
        recorder.note_step(0, compressed=candidate > 0, candidate=candidate)
    never = np.iinfo(np.int64).max
    times = recorder.trial_times(0, candidates=3, latest=9).numpy()
    assert 0 < times[0] < 5e9
    assert 0 < times[1] < 5e9
    assert times[2] == never
    assert recorder.trial_times(7, candidates=2, latest=9).numpy().tolist() == [never] * 2


def test_how_a_trial_ended_is_kept() -> None:
    recorder = ops.Recorder()
    chosen, times = recorder.trial(0, 2)
    assert (chosen, times.size) == (-1, 0)
    recorder.keep_trial(0, tf.constant([3 << 30, 1 << 30], tf.int64), tf.constant(1, tf.int64))
    chosen, times = recorder.trial(0, 2)
    assert chosen == 1
    np.testing.assert_allclose(times, [3.221225472, 1.073741824], rtol=1e-12)
    assert recorder.trial(0, 3)[0] == -1
    assert recorder.candidate(0) == -1
    recorder.note_step(0, compressed=True, candidate=1)
    assert recorder.candidate(0) == 1
