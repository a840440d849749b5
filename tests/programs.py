"""Runs programs such as the examples, most of them without importing TensorFlow anew."""

import os
import runpy
import sys
from pathlib import Path

from tests.fork_server import FORK_SERVER

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = f"{__name__}:script"  # the function of a task of the fork server


def output_of(path: Path, *arguments: str, new: bool = False, status: int = 0) -> str:
    """Returns what a program writes to stdout and stderr, and checks its exit code.

    A new Python runs it, or a fork of one that has imported TensorFlow.
    """
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    environment |= {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    return FORK_SERVER.output(
        *(SCRIPT, str(path), *arguments), environment=environment, status=status, new=new
    )


def script(path: str, *arguments: str) -> None:
    """Does what `python path arguments` does, with the repository in PYTHONPATH."""
    sys.argv = [path, *arguments]
    sys.path[:1] = [os.path.dirname(path), str(ROOT)]
    runpy.run_path(path, run_name="__main__")
