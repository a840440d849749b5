"""BackupAndRestore: what a training is goes over restarts, resizes and changes."""

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases, matrix
from tests.keras.compressed import AUTO, NONE, compressed_strategy
from tests.keras.stock import (
    BATCH,
    CLASSES,
    FEATURES,
    Array,
    Build,
    assert_same_bits,
    compiled,
    data,
    mlp,
    stock_strategy,
)

FAIL_IN, EPOCHS = 2, 4
Interrupted = Callable[..., "Recorder"]


class Recorder(keras.callbacks.Callback):
    """Notes what there is when an epoch begins, and calls a function after a batch."""

    def __init__(
        self,
        strategy: Any,
        at: tuple[int, int] | None = None,
        do: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.strategy, self.at, self.do = strategy, at, do
        self.states: dict[int, list[Array]] = {}
        self.totals: dict[int, list[Array | None]] = {}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.states[epoch] = [v.numpy() for v in (*self.model.weights, *optimizer_of(self.model))]
        state = getattr(self.strategy, "compression_state", None)
        variables = self.model.trainable_variables if state is not None else []
        self.totals[epoch] = [state.total(v.value) for v in variables]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (list(self.states)[-1], batch) == self.at:
            self.do()


def optimizer_of(model: keras.Model) -> list[keras.Variable]:
    return model.optimizer.variables


def fail() -> None:
    raise InterruptedError


def sigterm() -> None:
    signal.raise_signal(signal.SIGTERM)


def make(strategy: tf.distribute.Strategy, build: Build = mlp) -> keras.Model:
    return compiled(strategy, build, lambda: keras.optimizers.SGD(0.1, momentum=0.9))


def train(
    model: keras.Model,
    backup: keras.callbacks.Callback,
    at: tuple[int, int] | None = None,
    do: Callable[[], None] = fail,
    epochs: int = EPOCHS,
) -> Recorder:
    """Trains until all is done, or `do` ends it."""
    recorder = Recorder(model.distribute_strategy, at, do)
    try:
        model.fit(*data(), batch_size=BATCH, epochs=epochs, callbacks=[backup, recorder], verbose=0)
    except InterruptedError:
        assert do is fail
    return recorder


def interrupt(
    strategy: tf.distribute.Strategy, folder: Path, build: Build = mlp, **options: Any
) -> Recorder:
    """Trains up to a batch of an epoch; the backup is of the epoch's beginning."""
    backup = tf_gc.keras.BackupAndRestore(folder, **options)
    return train(make(strategy, build), backup, at=(FAIL_IN, 1))


def resume(
    strategy: tf.distribute.Strategy, folder: Path, build: Build = mlp, **options: Any
) -> Recorder:
    return train(make(strategy, build), tf_gc.keras.BackupAndRestore(folder, **options))


def assert_same_state(resumed: Recorder, before: Recorder, epoch: int = FAIL_IN) -> None:
    assert next(iter(resumed.states)) == epoch
    for mine, theirs in zip(resumed.states[epoch], before.states[epoch], strict=True):
        assert_same_bits(mine, theirs)


def assert_same_totals(resumed: Recorder, before: Recorder, epoch: int = FAIL_IN) -> None:
    for mine, theirs in zip(resumed.totals[epoch], before.totals[epoch], strict=True):
        assert mine is not None
        assert theirs is not None
        assert (theirs != 0).any()
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-9)


def named(*layers: str, scores: str = "scores", classes: int = CLASSES) -> Build:
    def build() -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((FEATURES,)),
                *(keras.layers.Dense(16, activation="relu", name=name) for name in layers),
                keras.layers.Dense(classes, name=scores),
            ],
            name="named",
        )

    return build


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    """Does what `interrupt` does; each training that many tests begin with is done once."""
    done: dict[Any, tuple[Path, Recorder]] = {}

    def interrupted(
        folder: Path, replicas: int = 2, params: Any = AUTO, double_checkpoint: bool = False
    ) -> Recorder:
        key = (replicas, params, double_checkpoint)
        if key not in done:
            original = tmp_path_factory.mktemp("interrupted")
            strategy = compressed_strategy(replicas, params)
            recorder = interrupt(strategy, original, double_checkpoint=double_checkpoint)
            done[key] = (original, recorder)
        original, recorder = done[key]
        shutil.copytree(original, folder, dirs_exist_ok=True)
        return recorder

    return interrupted


@pytest.fixture
def default_sigterm() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


OF_FOUR = tf_gc.TwoBit(warm_up=False, bypass_size=0, plan="scatter_gather")


@cases("before, after, codec", (4, 2, OF_FOUR), (2, 4, AUTO))
def test_a_job_of_another_size_goes_on_with_all_that_was_not_sent(
    tmp_path: Path, interrupted: Interrupted, before: int, after: int, codec: Any
) -> None:
    first = interrupted(tmp_path / "backup", before, codec)
    strategy = compressed_strategy(after, codec)
    resumed = resume(strategy, tmp_path / "backup")
    assert_same_state(resumed, first)
    assert_same_totals(resumed, first)
    assert list(resumed.states) == [2, 3]
    assert not (tmp_path / "backup").exists()


def test_one_replica_applies_what_it_has_nobody_to_send_to(
    tmp_path: Path, interrupted: Interrupted
) -> None:
    first = interrupted(tmp_path, 4, OF_FOUR)
    alone = train(make(compressed_strategy(1)), tf_gc.keras.BackupAndRestore(tmp_path), at=(3, 0))
    assert_same_totals(alone, first)
    resumed = resume(compressed_strategy(2), tmp_path)
    assert_same_state(resumed, alone, 3)
    for total in (*alone.totals[3], *resumed.totals[3]):
        assert total is not None
        assert not total.any()


def test_each_replica_gets_an_equal_part(tmp_path: Path, interrupted: Interrupted) -> None:
    first = interrupted(tmp_path)
    strategy = compressed_strategy(4)
    model = make(strategy)
    backup = tf_gc.keras.BackupAndRestore(tmp_path, delete_checkpoint=False)
    train(model, backup, epochs=FAIL_IN)  # which are done: nothing is trained
    for variable, total in zip(model.trainable_variables, first.totals[FAIL_IN], strict=True):
        for part in strategy.compression_state.residuals_of(variable.value):
            np.testing.assert_allclose(part, total / 4, rtol=1e-6, atol=1e-9)


def test_added_and_removed_layers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = interrupt(compressed_strategy(), tmp_path, named("a", "b"))
    names = ["a", "a_bias", "b", "b_bias", "s", "s_bias"]
    kept = dict(zip(names, first.totals[FAIL_IN], strict=True))
    smaller = train(
        make(compressed_strategy(), named("a")),
        tf_gc.keras.BackupAndRestore(tmp_path),
        at=(FAIL_IN + 1, 1),
    )
    for mine, key in zip(smaller.totals[FAIL_IN], ["a", "a_bias", "s", "s_bias"], strict=True):
        np.testing.assert_allclose(mine, kept[key], rtol=1e-6, atol=1e-9)
    (line,) = [r.getMessage() for r in caplog.records if "what fits" in r.getMessage()]
    assert "residuals of named/b/bias, named/b/kernel dropped" in line
    assert "\n" not in line

    caplog.clear()
    larger = resume(compressed_strategy(), tmp_path, named("a", "c"))
    a, _, added, _, scores, _ = larger.totals[FAIL_IN + 1]
    before = smaller.totals[FAIL_IN + 1]
    for mine, theirs in ((a, before[0]), (scores, before[2])):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-9)
    assert added is None
    assert len([r for r in caplog.records if "what fits" in r.getMessage()]) == 1


@cases("saved", "none", "stock")
def test_a_backup_of_uncompressed_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, saved: str
) -> None:
    if saved == "stock":
        strategy, kind = stock_strategy(), keras.callbacks.BackupAndRestore
    else:
        strategy, kind = compressed_strategy(2, NONE), tf_gc.keras.BackupAndRestore
    first = train(make(strategy), kind(str(tmp_path)), at=(FAIL_IN, 1))
    model = make(compressed_strategy())
    model.fit(*data(), batch_size=BATCH, verbose=0)  # leaves residuals, which do not belong to it
    resumed = train(model, tf_gc.keras.BackupAndRestore(tmp_path))
    assert_same_state(resumed, first)
    assert all(total is not None and not total.any() for total in resumed.totals[FAIL_IN])
    assert all(total is not None and total.any() for total in resumed.totals[3])
    (line,) = [r.getMessage() for r in caplog.records if "what fits" in r.getMessage()]
    assert "no residuals" in line


@cases("restarted", "none", "stock", "fixed")
def test_a_restart_with_other_or_no_compression(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, interrupted: Interrupted, restarted: str
) -> None:
    first = interrupted(tmp_path)
    codec = NONE if restarted == "none" else tf_gc.TwoBit(0.05)
    strategy = stock_strategy() if restarted == "stock" else compressed_strategy(2, codec)
    resumed = resume(strategy, tmp_path)
    assert_same_state(resumed, first)
    said = [r.getMessage() for r in caplog.records if "what fits" in r.getMessage()]
    if restarted == "fixed":
        assert_same_totals(resumed, first)
        assert not said
    else:
        (line,) = said
        assert "residuals of 4 variables dropped" in line


def test_restoring_in_the_same_process_undoes_later_steps(tmp_path: Path) -> None:
    strategy = compressed_strategy()
    model = make(strategy)
    backup = tf_gc.keras.BackupAndRestore(tmp_path)
    first = train(model, backup, at=(FAIL_IN, 3))
    resumed = train(model, backup)
    assert_same_state(resumed, first)
    assert_same_totals(resumed, first)


@cases(
    "double, name",
    (True, "residuals.npz"),
    (True, "latest.weights.h5"),
    (False, "residuals.npz"),
    (False, "training_metadata.json"),
)
def test_a_damaged_backup_is_an_error_unless_there_is_another(
    tmp_path: Path, interrupted: Interrupted, double: bool, name: str
) -> None:
    first = interrupted(tmp_path, double_checkpoint=double)
    newest = max(int(path.name) for path in tmp_path.iterdir() if path.is_dir())
    damaged = tmp_path / str(newest) / name
    damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size // 2])
    if not double:
        with pytest.raises((OSError, ValueError)):
            resume(compressed_strategy(), tmp_path)
        return
    resumed = resume(compressed_strategy(), tmp_path)
    assert_same_state(resumed, first, 1)
    assert_same_totals(resumed, first, 1)


def test_after_a_restart_backups_of_batches_know_their_epoch(tmp_path: Path) -> None:
    """Keras' callback takes the first epoch after a restart for epoch 0."""
    options = {"save_freq": 3, "delete_checkpoint": False}
    train(make(compressed_strategy()), tf_gc.keras.BackupAndRestore(tmp_path, **options), (2, 3))
    backup = tf_gc.keras.BackupAndRestore(tmp_path, **options)
    assert list(train(make(compressed_strategy()), backup, (2, 3)).states) == [2]
    assert list(resume(compressed_strategy(), tmp_path).states) == [2, 3]


@cases("save_freq", False, "epoch")
@pytest.mark.usefixtures("default_sigterm")
def test_sigterm_saves_after_the_step_and_stops(tmp_path: Path, save_freq: Any) -> None:
    strategy = compressed_strategy()
    model = make(strategy)
    backup = tf_gc.keras.BackupAndRestore(tmp_path, save_freq)
    first = train(model, backup, at=(1, 2), do=sigterm)
    assert backup.preempted
    assert list(first.states) == [0, 1]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    stopped = Recorder(strategy)
    stopped.set_model(model)
    stopped.on_epoch_begin(1)
    # The signal comes at the end of batch 2 or, for the backup is asked first, of batch 3.
    assert int(model.optimizer.iterations.numpy()) in (7, 8)

    resumed = resume(compressed_strategy(), tmp_path, save_freq=save_freq)
    assert_same_state(resumed, stopped, 1)
    assert_same_totals(resumed, stopped, 1)
    assert list(resumed.states) == [1, 2, 3]
    assert not tmp_path.exists()


@matrix
@pytest.mark.usefixtures("default_sigterm")
def test_a_program_keeps_its_own_handler(tmp_path: Path) -> None:
    calls = []
    handler = lambda number, frame: calls.append(number)  # noqa: E731
    signal.signal(signal.SIGTERM, handler)
    backup = tf_gc.keras.BackupAndRestore(tmp_path)
    model = make(compressed_strategy())
    assert list(train(model, backup, (1, 0), sigterm, epochs=2).states) == [0, 1]
    assert calls == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is handler
    assert not backup.preempted

    train(make(compressed_strategy()), backup, (1, 0), backup.request_stop)
    assert backup.preempted
    assert tmp_path.exists()


@matrix
def test_under_the_default_strategy_it_is_keras_callback(tmp_path: Path) -> None:
    strategy = tf.distribute.get_strategy()
    first = interrupt(strategy, tmp_path)
    resumed = resume(strategy, tmp_path)
    assert_same_state(resumed, first)
    assert not tmp_path.exists()
    assert issubclass(tf_gc.keras.BackupAndRestore, keras.callbacks.BackupAndRestore)


def test_a_stop_that_is_asked_for_before_fit_stops_it(tmp_path: Path) -> None:
    backup = tf_gc.keras.BackupAndRestore(tmp_path)
    backup.request_stop()
    model = make(compressed_strategy())
    train(model, backup)
    assert backup.preempted
    assert int(model.optimizer.iterations.numpy()) == 1


def test_an_unbuilt_model_is_an_error(tmp_path: Path, interrupted: Interrupted) -> None:
    interrupted(tmp_path)
    model = keras.Sequential([keras.layers.Dense(CLASSES)])
    backup = tf_gc.keras.BackupAndRestore(tmp_path)
    backup.set_model(model)
    with pytest.raises(ValueError, match="build"):
        backup.on_train_begin()
