"""BackupAndRestore: what a training is goes over restarts, resizes and changes."""

import json
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.bits import assert_same_bits
from tests.cases import cases, matrix
from tests.fork_server import FORK_SERVER
from tests.keras.compressed import AUTO, NONE, compressed_strategy
from tests.keras.stock import (
    BATCH,
    CLASSES,
    FEATURES,
    Array,
    Build,
    compiled,
    data,
    mlp,
    stock_strategy,
)
from tf_gc.keras.multi_worker import preemption

FAIL_IN, EPOCHS = 2, 4
Backup = tf_gc.keras.BackupAndRestore


class Recorder(keras.callbacks.Callback):
    """Notes what there is when an epoch begins, and calls a function after a batch."""

    def __init__(self, at: tuple[int, int] | None, do: Callable[[], Any]) -> None:
        super().__init__()
        self.at, self.do = at, do
        self.states: dict[int, list[Array]] = {}
        self.totals: dict[int, list[Array | None]] = {}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        weights = (*self.model.weights, *self.model.optimizer.variables)
        self.states[epoch] = [weight.numpy() for weight in weights]
        self.totals[epoch] = totals_of(self.model)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (list(self.states)[-1], batch) == self.at:
            self.do()


def totals_of(model: keras.Model) -> list[Array | None]:
    state = getattr(model.distribute_strategy, "compression_state", None)
    return [state.total(v.value) for v in model.trainable_variables] if state is not None else []


def fail() -> None:
    raise InterruptedError


def sigterm() -> None:
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)  # as from Slurm and from the launcher


def make(strategy: tf.distribute.Strategy, build: Build = mlp) -> keras.Model:
    return compiled(strategy, build, lambda: keras.optimizers.SGD(0.1, momentum=0.9))


def train(
    model: keras.Model,
    backup: Any,
    at: tuple[int, int] | None = None,
    do: Callable[[], Any] = fail,
    epochs: int = EPOCHS,
) -> Recorder:
    """Trains until all is done, or `do` ends it; `backup` may be a folder."""
    backup = Backup(backup) if isinstance(backup, Path) else backup
    recorder = Recorder(at, do)
    try:
        model.fit(*data(), batch_size=BATCH, epochs=epochs, callbacks=[backup, recorder], verbose=0)
    except InterruptedError:
        assert do is fail
    return recorder


def assert_goes_on(resumed: Recorder, before: Recorder, epoch: int = FAIL_IN) -> None:
    assert next(iter(resumed.states)) == epoch
    for mine, theirs in zip(resumed.states[epoch], before.states[epoch], strict=True):
        assert_same_bits(mine, theirs)


def assert_close(mine: Array | None, theirs: Array | None) -> None:
    assert theirs.any()
    np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-9)


def assert_same_totals(resumed: Recorder, before: Recorder, epoch: int = FAIL_IN) -> None:
    for mine, theirs in zip(resumed.totals[epoch], before.totals[epoch], strict=True):
        assert_close(mine, theirs)


def what_fits(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [r.getMessage() for r in caplog.records if "what fits" in r.getMessage()]
    caplog.clear()
    return lines


def named(*layers: str, last: str = "scores", classes: int = CLASSES) -> Build:
    def build() -> keras.Model:
        hidden = [keras.layers.Dense(16, activation="relu", name=name) for name in layers]
        scores = keras.layers.Dense(classes, name=last)
        return keras.Sequential([keras.Input((FEATURES,)), *hidden, scores], name="named")

    return build


Interrupted = Callable[..., Recorder]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    """Puts the backups of a training that failed in its third epoch into a folder."""
    done: dict[Any, tuple[Path, Recorder]] = {}

    def interrupted(folder: Path, replicas: int = 2, params: Any = AUTO) -> Recorder:
        if (replicas, params) not in done:
            original = tmp_path_factory.mktemp("interrupted")
            backup = Backup(original, double_checkpoint=True)
            model = make(compressed_strategy(replicas, params))
            done[replicas, params] = original, train(model, backup, at=(FAIL_IN, 1))
        original, recorder = done[replicas, params]
        shutil.copytree(original, folder, dirs_exist_ok=True)
        return recorder

    return interrupted


@pytest.fixture
def default_sigterm() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


OF_FOUR = tf_gc.TwoBit(warm_up=False, bypass_size=0, plan="scatter_gather")


@cases("before, after, codec", (4, 2, OF_FOUR), (2, 4, AUTO), (2, 2, tf_gc.TwoBit(0.05)))
def test_a_job_of_another_size_goes_on_with_all_that_was_not_sent(
    tmp_path: Path, interrupted: Interrupted, before: int, after: int, codec: Any
) -> None:
    folder = tmp_path / "backup"
    first = interrupted(folder, before, OF_FOUR if before == 4 else AUTO)
    resumed = train(make(compressed_strategy(after, codec)), folder)
    assert_goes_on(resumed, first)
    assert_same_totals(resumed, first)
    assert list(resumed.states) == [2, 3]
    assert not folder.exists()


def test_one_replica_applies_what_it_has_nobody_to_send_to(
    tmp_path: Path, interrupted: Interrupted
) -> None:
    first = interrupted(tmp_path, 4, OF_FOUR)
    alone = train(make(compressed_strategy(1)), tmp_path, at=(3, 0))
    assert_same_totals(alone, first)
    resumed = train(make(compressed_strategy(2)), tmp_path)
    assert_goes_on(resumed, alone, 3)
    for total in (*alone.totals[3], *resumed.totals[3]):
        assert not total.any()


def test_added_and_removed_layers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = train(make(compressed_strategy(), named("a", "b")), tmp_path, at=(FAIL_IN, 1))
    a, a_bias, _, _, scores, scores_bias = first.totals[FAIL_IN]
    smaller = train(make(compressed_strategy(), named("a")), tmp_path, at=(FAIL_IN + 1, 1))
    expected = [a, a_bias, scores, scores_bias]
    for mine, theirs in zip(smaller.totals[FAIL_IN], expected, strict=True):
        assert_close(mine, theirs)
    (line,) = what_fits(caplog)
    assert "residuals of named/b/bias, named/b/kernel dropped" in line
    assert "\n" not in line

    larger = train(make(compressed_strategy(), named("a", "c")), tmp_path)
    a, _, added, _, scores, _ = larger.totals[FAIL_IN + 1]
    before = smaller.totals[FAIL_IN + 1]
    assert_close(a, before[0])
    assert_close(scores, before[2])
    assert added is None
    assert len(what_fits(caplog)) == 1


def test_a_warm_up_outlives_the_layer_that_it_belongs_to(tmp_path: Path) -> None:
    first, second = (compressed_strategy(2, tf_gc.TwoBit(bypass_size=0)) for _ in range(2))
    train(make(first, named("a", "b")), tmp_path, at=(FAIL_IN, 1))
    steps = first.compression_state.warm_up_steps
    (owner,) = (e.key for e in first.compression_state.entries() if e.slot == "warm_up")
    assert "scores" in owner.variable
    model, states = make(second, named("a", "b", last="head", classes=CLASSES + 1)), []
    note = lambda: states.append(second.compression_state.warm_up_steps)  # noqa: E731
    train(model, tmp_path, (FAIL_IN, 0), note)
    assert states == [steps - 1]  # the backup is of two steps before, and one came since


@cases("saved", "none", "stock")
def test_a_backup_of_uncompressed_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, saved: str
) -> None:
    if saved == "stock":
        strategy, kind = stock_strategy(), keras.callbacks.BackupAndRestore
    else:
        strategy, kind = compressed_strategy(2, NONE), Backup
    first = train(make(strategy), kind(str(tmp_path)), at=(FAIL_IN, 1))
    model = make(compressed_strategy())
    model.fit(*data(), batch_size=BATCH, verbose=0)  # leaves residuals, which do not belong to it
    resumed = train(model, tmp_path)
    assert_goes_on(resumed, first)
    assert all(total is not None and not total.any() for total in resumed.totals[FAIL_IN])
    assert all(total is not None and total.any() for total in resumed.totals[3])
    (line,) = what_fits(caplog)
    assert "no residuals" in line


@cases("restarted", "none", "stock")
def test_a_restart_without_compression(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, interrupted: Interrupted, restarted: str
) -> None:
    first = interrupted(tmp_path)
    strategy = stock_strategy() if restarted == "stock" else compressed_strategy(2, NONE)
    assert_goes_on(train(make(strategy), tmp_path), first)
    (line,) = what_fits(caplog)
    assert "residuals of 4 variables dropped" in line


@cases(
    "double, name", (True, "residuals.npz"), (True, "latest.weights.h5"), (False, "residuals.npz")
)
def test_a_damaged_backup_is_an_error_unless_there_is_another(
    tmp_path: Path, interrupted: Interrupted, double: bool, name: str
) -> None:
    first = interrupted(tmp_path)
    _, newest = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    damaged = newest / name
    damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size // 2])
    model = make(compressed_strategy())
    if double:
        resumed = train(model, tmp_path)
        assert_goes_on(resumed, first, 1)
        assert_same_totals(resumed, first, 1)
    else:
        (tmp_path / "complete.json").write_text(json.dumps([newest.name]))
        with pytest.raises((OSError, ValueError)):
            train(model, tmp_path)


def test_after_a_restart_backups_of_batches_know_their_epoch(tmp_path: Path) -> None:
    """Keras' callback takes the first epoch after a restart for epoch 0."""
    options = {"save_freq": 3, "delete_checkpoint": False}
    for begun in ([0, 1, 2], [2]):
        backup = Backup(tmp_path, **options)
        assert list(train(make(compressed_strategy()), backup, (2, 3)).states) == begun
        assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1
    assert list(train(make(compressed_strategy()), tmp_path).states) == [2, 3]


@cases("save_freq", False, "epoch")
@pytest.mark.usefixtures("default_sigterm")
def test_sigterm_saves_after_the_step_and_stops(tmp_path: Path, save_freq: Any) -> None:
    model = make(compressed_strategy())
    backup = Backup(tmp_path, save_freq)
    first = train(model, backup, at=(1, 2), do=sigterm)
    assert backup.preempted
    assert list(first.states) == [0, 1]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    first.on_epoch_begin(1)  # notes what there is now
    # The signal comes at the end of batch 2 or, for the backup is asked first, of batch 3.
    assert int(model.optimizer.iterations.numpy()) in (7, 8)

    resumed = train(make(compressed_strategy()), Backup(tmp_path, save_freq))
    assert_goes_on(resumed, first, 1)
    assert_same_totals(resumed, first, 1)
    assert list(resumed.states) == [1, 2, 3]
    assert not tmp_path.exists()


def train_and_get_sigterm_twice(folder: str) -> None:
    preemption._SAME_SIGNAL_SECONDS = 0.0  # as if the second signal came later

    def twice() -> None:
        signal.raise_signal(signal.SIGTERM)
        Path(folder, "goes on").touch()
        signal.raise_signal(signal.SIGTERM)

    strategy = tf_gc.CompressedMirroredStrategy(["CPU:0"])
    train(make(strategy), Path(folder, "backup"), at=(1, 2), do=twice)


def test_a_later_sigterm_ends_the_process(tmp_path: Path) -> None:
    program = f"{__name__}:{train_and_get_sigterm_twice.__name__}"
    FORK_SERVER.output(program, str(tmp_path), status=-signal.SIGTERM)
    assert (tmp_path / "goes on").exists()


@matrix
@pytest.mark.usefixtures("default_sigterm")
def test_a_program_keeps_its_own_handler(tmp_path: Path) -> None:
    calls = []
    handler = lambda number, frame: calls.append(number)  # noqa: E731
    signal.signal(signal.SIGTERM, handler)
    backup = Backup(tmp_path)
    model = make(compressed_strategy())
    assert list(train(model, backup, (1, 0), sigterm, epochs=2).states) == [0, 1]
    assert calls == [signal.SIGTERM] * 2
    assert signal.getsignal(signal.SIGTERM) is handler
    assert not backup.preempted

    train(make(compressed_strategy()), backup, (1, 0), backup.request_stop)
    assert backup.preempted
    assert tmp_path.exists()


def test_a_stop_that_is_asked_for_before_fit_stops_it(tmp_path: Path) -> None:
    backup = Backup(tmp_path)
    backup.request_stop()
    model = make(compressed_strategy())
    train(model, backup)
    assert backup.preempted
    assert int(model.optimizer.iterations.numpy()) == 1
    train(make(compressed_strategy()), backup, epochs=1)
    assert not backup.preempted


def test_in_another_thread_it_says_that_it_watches_no_sigterm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As Ray Train does, whose loop is no main thread."""
    model = make(compressed_strategy(1))
    thread = threading.Thread(target=train, args=(model, tmp_path), kwargs={"epochs": 1})
    thread.start()
    thread.join()
    (line,) = [r.getMessage() for r in caplog.records if "SIGTERM" in r.getMessage()]
    assert "request_stop" in line
    assert int(model.optimizer.iterations.numpy()) == 4


def test_an_unbuilt_model_is_an_error(tmp_path: Path, interrupted: Interrupted) -> None:
    interrupted(tmp_path)
    backup = Backup(tmp_path)
    backup.set_model(keras.Sequential([keras.layers.Dense(CLASSES)]))
    with pytest.raises(ValueError, match="build"):
        backup.on_train_begin()


@pytest.mark.parametrize(
    ("folder", "save_freq", "named"),
    [
        ("", "epoch", "backup_dir"),
        *(("backup", freq, f"save_freq.* {freq!r}") for freq in ("batch", 0, -1, True, 2.5)),
    ],
)
def test_wrong_arguments_are_errors(folder: str, save_freq: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Backup(folder, save_freq)
