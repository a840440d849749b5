"""What `tf_gc.keras.BackupAndRestore` takes."""

from typing import Any

import pytest

import tf_gc


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
