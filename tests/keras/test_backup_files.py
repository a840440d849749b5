"""A directory of backups has its last complete one whenever the process that writes is killed."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.cases import cases
from tests.fork_server import FORK_SERVER
from tf_gc.cluster.workers import Workers
from tf_gc.keras.backup_files import BackupFiles
from tf_gc.launch.tasks import MESSAGES

PARTS = ("a", "b", "c")


def kill_writers(directory: str, keep: str, kills: str) -> None:
    """Kills writers one after the other, and looks at what each leaves; prints what is left.

    They are forks: no thread of TensorFlow runs yet.
    """
    last = 0
    numbers = random.Random(1)
    for _ in range(int(kills)):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            write_for_ever(directory, int(keep), last + 1, writer)
        os.read(reader, 4)  # it has written one
        time.sleep(numbers.uniform(0, 0.01))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(writer)
        said = [last + 1]
        while word := os.read(reader, 4):
            said.append(int.from_bytes(word, "big"))
        os.close(reader)
        complete = [number(folder) for folder in BackupFiles(directory).complete()]
        assert complete[0] in (said[-1], said[-1] + 1), (complete, said)
        assert complete == list(range(complete[0], max(complete[0] - int(keep), 0), -1)), complete
        last = complete[0]
    print(last, len(os.listdir(directory)))


def write_for_ever(directory: str, keep: int, first: int, pipe: int) -> None:
    """Commits one backup after the other, and says the number of each through a pipe."""
    while True:
        files = BackupFiles(directory)
        folder = files.begin()
        for part in PARTS:
            with open(os.path.join(folder, part), "w") as file:
                file.write("0" * 20000 + str(first))
                file.flush()
                file.write(".")
        files.commit(folder, keep)
        os.write(pipe, first.to_bytes(4, "big"))
        first += 1


def number(folder: str) -> int:
    texts = [Path(folder, part).read_text() for part in PARTS]
    assert len(set(texts)) == 1, texts
    assert texts[0].endswith("."), texts
    return int(texts[0].rstrip(".")[-9:])


@cases("keep, kills", (2, 20), (1, 60))
def test_writers_that_are_killed_leave_the_last_complete_backup(
    tmp_path: Path, keep: int, kills: int
) -> None:
    arguments = [str(tmp_path / "backups"), str(keep), str(kills)]
    output = FORK_SERVER.output(f"{__name__}:kill_writers", *arguments)
    last, entries = map(int, output.splitlines()[-1].split())
    assert last >= kills
    assert entries <= keep + 4  # what was kept, one to remove, one begun, the list, a new one


def test_only_what_is_committed_counts(tmp_path: Path) -> None:
    files = BackupFiles(str(tmp_path / "new"))
    assert files.complete() == []
    first = files.begin()
    assert files.complete() == []
    files.commit(first, keep=2)
    left_by_a_killed_writer = files.begin()
    second = files.begin()
    assert len({first, second, left_by_a_killed_writer}) == 3
    files.commit(second, keep=2)
    assert files.complete() == [second, first]
    assert not Path(left_by_a_killed_writer).exists()
    third = files.begin()
    files.commit(third, keep=1)
    assert files.complete() == [third]
    assert not Path(second).exists()
    files.remove()
    assert not (tmp_path / "new").exists()
    files.remove()


def test_backups_wait_for_the_launcher_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several trainings of a process nobody could tell which one they are of."""
    told = tmp_path / "messages"
    monkeypatch.setenv(MESSAGES, str(told))
    monkeypatch.chdir(tmp_path)
    url = f"file://{tmp_path}/url"
    for directory, noted in (("backup", str(tmp_path / "backup")), (url, url)):
        path = tmp_path / noted.rpartition("/")[2]
        files = BackupFiles(directory)
        for first in (True, False):
            files.forget(Workers())  # what an earlier training has left
            assert not path.exists()
            files.commit(files.begin(), keep=1)
            assert files.can_wait() == first
            files.end(files.can_wait(), writes=True)
            assert path.exists() == first
        assert told.read_text().splitlines()[-1] == noted
    monkeypatch.delenv(MESSAGES)
    assert not BackupFiles("another").can_wait()
