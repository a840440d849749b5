"""Programs that tests compile: kept until a source, a flag or the compiler changes."""

import fcntl
import hashlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "tests"


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CXX", "g++"))


def kept(
    result: Path, sources: Iterable[Path], flags: Sequence[str], build: Callable[[Path], None]
) -> Path:
    """Returns `result`, which `build` makes unless there is one of the same sources (headers
    included), flags and compiler.
    """
    version = subprocess.run([*compiler(), "--version"], check=True, capture_output=True)
    digest = hashlib.sha256(version.stdout + "\0".join([*compiler(), *flags]).encode())
    for source in sorted(sources):
        digest.update(b"\0" + str(source).encode() + b"\0" + source.read_bytes())
    key = digest.hexdigest()
    key_file = result.with_name(f"{result.name}.key")
    result.parent.mkdir(parents=True, exist_ok=True)
    with open(result.with_name(f"{result.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes of pytest-xdist may want it as well
        if not (result.exists() and key_file.exists() and key_file.read_text() == key):
            key_file.unlink(missing_ok=True)
            with tempfile.TemporaryDirectory(dir=result.parent) as unfinished:
                output = Path(unfinished, result.name)
                build(output)
                output.rename(result)
            key_file.write_text(key)
    return result
