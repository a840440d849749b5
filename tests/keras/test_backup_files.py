"""A directory of backups has its last complete one whenever the process that writes is killed."""

import subprocess
import sys
from pathlib import Path

from tf_gc.keras.backup_files import BackupFiles

ROOT = Path(__file__).resolve().parents[2]

# Forks a writer for each kill: no thread of TensorFlow runs yet.
KILLED_WRITERS = """
import os, random, signal, sys, time
import tensorflow as tf
from tf_gc.keras.backup_files import BackupFiles

directory, keep, kills = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
PARTS = ("a", "b", "c")

def number(folder):
    texts = [open(os.path.join(folder, part)).read() for part in PARTS]
    assert len(set(texts)) == 1 and texts[0].endswith("."), texts
    return int(texts[0].rstrip(".")[-9:])

def write_for_ever(first):
    while True:
        files = BackupFiles(directory)
        folder = files.begin()
        for part in PARTS:
            with open(os.path.join(folder, part), "w") as file:
                file.write("0" * 20000 + str(first))
                file.flush()
                file.write(".")
        files.commit(folder, keep)
        os.write(pipe[1], first.to_bytes(4, "big"))
        first += 1

last = 0
numbers = random.Random(1)
for _ in range(kills):
    pipe = os.pipe()
    child = os.fork()
    if child == 0:
        write_for_ever(last + 1)
    os.read(pipe[0], 4)  # it has written one
    time.sleep(numbers.uniform(0, 0.01))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(pipe[1])
    said = [last + 1]
    while word := os.read(pipe[0], 4):
        said.append(int.from_bytes(word, "big"))
    os.close(pipe[0])
    complete = [number(folder) for folder in BackupFiles(directory).complete()]
    assert complete[0] in (said[-1], said[-1] + 1), (complete, said)
    assert complete == list(range(complete[0], max(complete[0] - keep, 0), -1)), complete
    last = complete[0]
print(last, len(os.listdir(directory)))
"""


def test_writers_that_are_killed_leave_the_last_complete_backup(tmp_path: Path) -> None:
    for keep in (1, 2):
        arguments = [str(tmp_path / str(keep)), str(keep), "60"]
        done = subprocess.run(
            [sys.executable, "-c", KILLED_WRITERS, *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        last, entries = map(int, done.stdout.split())
        assert last >= 60
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
