"""Small programs without TensorFlow that the launcher starts."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

LAUNCHER = [sys.executable, "-m", "tf_gc.launch"]
LIMIT = 100  # seconds, for what else would never end
PRELUDE = f"""
import json, os, signal, sys, time
from pathlib import Path

def wait(ready):
    end = time.monotonic() + {LIMIT}
    while not ready():
        assert time.monotonic() < end, 'waits in vain'
        time.sleep(0.01)

name = '{{type}} {{index}}'.format(**json.loads(os.environ['TF_CONFIG'])['task'])
lives = Path(sys.argv[1], name)
life = len(lives.read_text()) if lives.exists() else 0
lives.write_text('x' * (life + 1))
"""


def start(folder: Path, program: str, *options: str) -> subprocess.Popen[str]:
    """Starts the launcher for a program, which knows its `name` and its `life`, from 0."""
    path = folder / "program.py"
    path.write_text(PRELUDE + program)
    process = subprocess.Popen(
        # A shell lets what it starts in the background ignore Ctrl-C, and so would the launcher.
        ["env", "--default-signal=INT,HUP", *LAUNCHER, *options, str(path), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    late = threading.Timer(LIMIT, process.kill)  # with all that it has started
    late.daemon = True
    late.start()
    return process


def wait(process: subprocess.Popen[str], ready: Callable[[], object]) -> None:
    """Waits until something is so, which it never will be once the launcher has ended."""
    while not ready():
        assert process.poll() is None or ready(), process.communicate()[0]
        time.sleep(0.05)


def has_ended(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "(zombie)" in status.read_text()


def run(folder: Path, program: str, *options: str) -> tuple[int, str, dict[str, int]]:
    """Returns the launcher's status, its output, and how many lives each task had."""
    process = start(folder, program, *options)
    output, _ = process.communicate()
    lives = {path.name: len(path.read_text()) for path in folder.glob("* [0-9]")}
    return process.returncode, output, lives
