"""Builds the native code with sanitizers and attacks it, each part for some seconds.

- attacks.py: the ops and the codec library, under AddressSanitizer and
  UndefinedBehaviorSanitizer;
- threads.cc: the codec library in many threads, under ThreadSanitizer. Not the ops: it has to see
  every lock, and TensorFlow's own are not compiled for it.

It needs GCC, or a compiler in CXX that takes the same flags. Programs and logs stay in
build/sanitize.
"""

import os
import runpy
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Distribution

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "sanitize"
CXX = shlex.split(os.environ.get("CXX", "g++"))
FLAGS = ["-O1", "-g1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all", "-Wall", "-Wextra"]
FLAGS += ["-std=c++17", "-ffp-contract=off", "-fPIC", "-I."]
ADDRESS, THREAD = "-fsanitize=address,undefined", "-fsanitize=thread"
# With these as well GCC 12 cannot compile TensorFlow's headers.
NOT_IN_OPS = "-fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute,vptr"

SEEDS = ("0", "1000000000")  # the first ones of two processes
OPTIONS = {
    # Python and TensorFlow keep what they have to the end. An allocation that is too large has to
    # fail, not to take the machine's memory.
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=4096",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # With oneDNN TensorFlow cuts tensors out of larger pieces of memory, where AddressSanitizer
    # does not see the end of one.
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}

SETUP: dict[str, Any] = runpy.run_path(str(ROOT / "setup.py"))
LIB = sorted(SETUP["files"]("LIB_SOURCES"))
OPS = sorted({*SETUP["SOURCES"]} - {*LIB})


def objects(sources: Iterable[str], *flags: str) -> list[Path]:
    """Compiles what has changed, as setup.py does."""
    command = [*CXX, *FLAGS, *flags]
    builder = SETUP["BuildOps"](Distribution())
    return builder.compile(list(sources), {".cc": command}, SETUP["digest_of"](*command))


def link(result: Path, *parts: str | Path) -> Path:
    result.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([*CXX, *map(str, parts), "-o", str(result)], check=True)
    return result


def sanitized_package() -> Path:
    """The folder with a copy of tf_gc whose op library has sanitizers."""
    copy = OUT / "package" / "tf_gc"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT / "tf_gc", copy, ignore=shutil.ignore_patterns("*.so"))
    # Together, since each op by itself takes most of its time for TensorFlow's headers.
    tf_flags = SETUP["flags"](SETUP["find_tensorflow"]())
    together = OUT / "ops.cc"
    together.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f'#include "{source}"\n' for source in OPS)
    if not together.exists() or together.read_text() != text:
        together.write_text(text)
    of_ops = objects(
        [together.relative_to(ROOT).as_posix()],
        *(ADDRESS, NOT_IN_OPS),
        *SETUP["BuildOps"].compile_flags(tf_flags),
    )
    of_lib = objects(LIB, ADDRESS)
    library = copy / "ops" / "_tf_gc_ops.so"
    link(library, "-shared", ADDRESS, *of_ops, *of_lib, *tf_flags.link)
    return copy.parent


def fixed_addresses() -> list[str]:
    """A prefix for commands: GCC's sanitizers before 14 want less random addresses."""
    command = ["setarch", "-R"]
    usable = shutil.which("setarch") and not subprocess.run([*command, "true"]).returncode
    return command if usable else []


def libraries(*names: str) -> list[str]:
    """Where the compiler's shared libraries are; just the file's name if it has none."""
    commands = [[*CXX, f"-print-file-name=lib{name}.so"] for name in names]
    return [subprocess.check_output(command, text=True).strip() for command in commands]


def main(seconds: str) -> None:
    def run(name: str, *command: str, **environment: str) -> None:
        start, log = time.monotonic(), OUT / f"{name}.log"
        log.unlink(missing_ok=True)
        with log.open("a") as output:
            done = subprocess.run(
                [*prefix, *command],
                cwd=OUT,
                env={**os.environ, **OPTIONS, **environment},
                stdout=output,
                stderr=output,
                timeout=1200 + 10 * float(seconds),
            )
        print(f"{name}: {time.monotonic() - start:.0f} s", log.read_text(), sep="\n", flush=True)
        if done.returncode:
            raise SystemExit(f"{name} failed: {shlex.join(command)}")

    if not all(Path(library).is_absolute() for library in libraries("asan", "ubsan", "tsan")):
        print("skipped: sanitizers (need libasan, libubsan and libtsan of g++)")
        return
    prefix = fixed_addresses()
    of_threads = objects([*LIB, "tests/sanitize/threads.cc"], THREAD)
    threads = link(OUT / "threads", THREAD, "-pthread", *of_threads)
    of_tf_gc = sanitized_package()
    # Python is not built with AddressSanitizer, which has to be the first library of a process.
    preloaded = " ".join(libraries("asan", "stdc++"))
    attacks = [sys.executable, "-m", "tests.sanitize.attacks", seconds]
    variables = {"LD_PRELOAD": preloaded, "PYTHONPATH": f"{of_tf_gc}:{ROOT}"}
    with ThreadPoolExecutor(2) as pool:
        runs = [
            *(pool.submit(run, f"from {seed}", *attacks, seed, **variables) for seed in SEEDS),
            pool.submit(run, "threads", str(threads)),
        ]
    for done in runs:
        done.result()


if __name__ == "__main__":
    main(sys.argv[1])
