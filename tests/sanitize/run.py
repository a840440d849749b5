"""Builds the native code with sanitizers and attacks it, each part for some seconds.

    python tests/sanitize/run.py [SECONDS]

- fuzz_codec.cc and fuzz_compact.cc: the codec library, under AddressSanitizer and
  UndefinedBehaviorSanitizer;
- fuzz_ops.py: the ops in TensorFlow, their library built with the same two;
- threads.cc: the codec library in many threads, under ThreadSanitizer. Not the ops: it has to see
  every lock, and TensorFlow's own are not compiled for it.

It needs GCC, or a compiler in CXX that takes the same flags. What is built stays in
build/sanitize, with the input that made a fuzz target fail.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "sanitize"
OUT = ROOT / "build" / "sanitize"
CXX = shlex.split(os.environ.get("CXX", "g++"))
FLAGS = ["-O1", "-g1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"]
LANGUAGE = ["-std=c++17", "-ffp-contract=off", "-Wall", "-Wextra", f"-I{ROOT}"]
ADDRESS, THREAD = "-fsanitize=address,undefined", "-fsanitize=thread"
# With these as well GCC 12 cannot compile TensorFlow's headers.
NOT_IN_OPS = "-fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute,vptr"

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


def program(name: str, sanitizer: str, sources: Iterable[Path]) -> Path:
    """Builds a program of these sources and the codec library, unless it is newer."""
    result = OUT / name
    sources = [*sources, *sorted((ROOT / "custom_ops" / "lib").glob("*/*.cc"))]
    read = [*sources, *(ROOT / "custom_ops").rglob("*.*"), *HERE.glob("*.h"), Path(__file__)]
    if result.exists() and result.stat().st_mtime > max(file.stat().st_mtime for file in read):
        return result
    objects = OUT / f"{name}.objects"
    objects.mkdir(parents=True, exist_ok=True)

    def compile_one(source: Path) -> str:
        # Sources in several folders have the same name.
        target = str(objects / f"{source.parent.name}_{source.stem}.o")
        command = [*CXX, *FLAGS, *LANGUAGE, sanitizer, "-c", str(source), "-o", target]
        subprocess.run(command, check=True)
        return target

    with ThreadPoolExecutor(2) as pool:
        targets = list(pool.map(compile_one, sources))
    subprocess.run([*CXX, sanitizer, "-pthread", *targets, "-o", str(result)], check=True)
    return result


def op_library() -> Path:
    """Builds the op library as setup.py does, with sanitizers."""
    flags = {
        "CXXFLAGS": shlex.join([*FLAGS, ADDRESS, NOT_IN_OPS]),
        "LDFLAGS": ADDRESS,
        "TF_GC_CUDA": "0",
    }
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", str(OUT)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **flags}, check=True)
    return OUT / "tf_gc" / "ops" / "_tf_gc_ops.so"


def fixed_addresses() -> list[str]:
    """A prefix for commands: GCC's sanitizers before 14 want less random addresses."""
    command = ["setarch", "-R"]
    usable = shutil.which("setarch") and not subprocess.run([*command, "true"]).returncode
    return command if usable else []


def libraries(*names: str) -> list[str]:
    """Where the compiler's shared libraries are; just the file's name if it has none."""
    paths = []
    for name in names:
        command = [*CXX, f"-print-file-name=lib{name}.so"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        paths.append(done.stdout.strip())
    return paths


def main(seconds: str) -> None:
    def run(name: str, *command: str, **environment: str) -> None:
        start = time.monotonic()
        done = subprocess.run(
            [*prefix, *command],
            cwd=OUT,
            env={**os.environ, **OPTIONS, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120 + 10 * float(seconds),
        )
        print(f"{name}: {time.monotonic() - start:.0f} s", done.stdout, sep="\n", flush=True)
        if done.returncode:
            raise SystemExit(f"{name} failed: {shlex.join(command)}")

    if not all(Path(library).is_absolute() for library in libraries("asan", "ubsan", "tsan")):
        print("skipped: sanitizers (need libasan, libubsan and libtsan of g++)")
        return
    prefix = fixed_addresses()
    fuzz = program("fuzz_codec", ADDRESS, sorted(HERE.glob("fuzz_*.cc")))
    threads = program("threads", THREAD, [HERE / "threads.cc"])
    library = op_library()
    # Python is not built with AddressSanitizer, which has to be the first library of a process.
    preloaded = " ".join(libraries("asan", "stdc++"))
    ops = [sys.executable, "-m", "tests.sanitize.fuzz_ops", str(library), seconds]
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(run, "fuzz_ops", *ops, LD_PRELOAD=preloaded, PYTHONPATH=str(ROOT)),
            pool.submit(run, "fuzz_codec", str(fuzz), seconds),
            pool.submit(run, "threads", str(threads)),
        ]
    for done in runs:
        done.result()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "20")
