"""What `tf_gc.keras.BackupAndRestore` takes."""

import threading
from pathlib import Path
from typing import Any

import pytest

import tf_gc
from tests.keras import stock


@pytest.mark.parametrize(
    ("folder", "save_freq", "named"),
    [
        ("", "epoch", "backup_dir"),
        *(("backup", freq, f"save_freq.* {freq!r}") for freq in ("batch", 0, -1, True, 2.5)),
    ],
)
def test_wrong_arguments_are_errors(folder: str, save_freq: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        tf_gc.keras.BackupAndRestore(folder, save_freq)


@pytest.mark.parametrize("save_freq", ["epoch", False, 1])
def test_others_are_not(save_freq: Any) -> None:
    assert tf_gc.keras.BackupAndRestore("backup", save_freq).save_freq == save_freq


def test_in_another_thread_it_says_that_it_watches_no_sigterm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As Ray Train does, whose loop is no main thread."""
    model = stock.compiled(tf_gc.CompressedMirroredStrategy(["CPU:0"]))
    backup = tf_gc.keras.BackupAndRestore(tmp_path)
    thread = threading.Thread(
        target=lambda: model.fit(*stock.data(), callbacks=[backup], verbose=0)
    )
    thread.start()
    thread.join()
    (line,) = [r.getMessage() for r in caplog.records if "SIGTERM" in r.getMessage()]
    assert "request_stop" in line
    assert int(model.optimizer.iterations.numpy()) == 2
