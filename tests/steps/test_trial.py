"""The rule of a trial: whose turn it is, when it ends, and what counts as fast."""

import numpy as np
import tensorflow as tf

from tests.cases import cases
from tf_gc import ops
from tf_gc.steps import trial
from tf_gc.steps.trial import ROUNDS, STEPS, TURN, Trial, faster

RULE = Trial(replicas=2)


def run(rule: Trial, state: tf.Tensor, steps: int, chosen: int = 0) -> tuple[list[bool], tf.Tensor]:
    """Makes steps; returns which of them compress, and the state."""
    turns = []
    for _ in range(steps):
        turns.append(bool(rule.compresses(state)))
        if bool(rule.is_on(state)):
            choice = chosen if bool(rule.is_last(state)) else 0
            state = rule.after_step(state, tf.constant(choice, tf.int64))
    return turns, state


@cases("chosen", 1, 0)
def test_the_two_take_turns_and_one_stays(chosen: int) -> None:
    turns, state = run(RULE, tf.zeros(trial.SIZE), STEPS + 20, chosen)
    expected = [compressed for _ in range(ROUNDS) for compressed in [False] * TURN + [True] * TURN]
    assert len(expected) == STEPS
    assert turns == [*expected, *[chosen == 1] * 20]
    assert not bool(RULE.is_on(state))


def test_it_knows_its_last_step_and_the_one_after_it() -> None:
    state = tf.zeros(trial.SIZE)
    last, just_ended = [], []
    for step in range(STEPS + 5):
        last += [step] if bool(RULE.is_last(state)) else []
        just_ended += [step] if bool(RULE.has_just_ended(state)) else []
        _, state = run(RULE, state, 1, chosen=1)
    assert (last, just_ended) == ([STEPS - 1], [STEPS])


def test_the_state_of_other_replicas_counts_for_nothing() -> None:
    _, ended = run(RULE, tf.zeros(trial.SIZE), STEPS + 1, chosen=1)
    other = Trial(replicas=4)
    turns, _ = run(other, ended, STEPS + 2, chosen=1)
    assert turns == run(other, tf.zeros(trial.SIZE), STEPS + 2, chosen=1)[0]


def test_the_slowest_worker_decides() -> None:
    chosen, slowest = faster(tf.constant([[5, 3], [5, 9]], tf.int64))
    assert int(chosen) == 0
    assert slowest.numpy().tolist() == [5, 9]
    assert int(faster(tf.constant([[5, 3], [5, 4]], tf.int64))[0]) == 1


def test_without_all_times_the_trial_begins_anew() -> None:
    chosen, _ = faster(tf.constant([[5, 3], [5, tf.int64.max]], tf.int64))
    assert int(chosen) == trial.UNDECIDED
    turns, _ = run(RULE, tf.zeros(trial.SIZE), 2 * STEPS, trial.UNDECIDED)
    assert turns == 2 * run(RULE, tf.zeros(trial.SIZE), STEPS)[0]


def test_times_are_medians_of_the_latest_steps_within_turns() -> None:
    recorder = ops.Recorder()
    for compressed in (False, True, True, True):
        recorder.note_step(0, compressed)
    full, compressed = recorder.trial_times(0, latest=9).numpy()
    never = np.iinfo(np.int64).max
    assert full == never
    assert 0 < compressed < 5e9
    for compressed in (False, False):
        recorder.note_step(0, compressed)
    assert 0 < recorder.trial_times(0, latest=9).numpy()[0] < 5e9
    assert recorder.trial_times(7, latest=9).numpy().tolist() == [never] * 2
