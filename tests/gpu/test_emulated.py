"""The CUDA kernels, run on the CPU, give the bits of the codec library.

For machines without a GPU. `make test-cuda` runs the same tests, and more, on a GPU.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tensorflow as tf

from tests import compiled
from tests.cases import matrix
from tf_gc.ops._loader import library_path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "gpu"
LIB = ROOT / "custom_ops" / "lib"
FLAGS = ["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", f"-I{ROOT}"]
EMULATED = [f"-I{TESTS / 'emulation'}", "-x", "c++"]
WARNINGS = ["-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Werror"]
# Accesses that are out of bounds or misaligned end the program.
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
TIMEOUT = 1200  # seconds, of a command

pytestmark = [matrix, pytest.mark.timeout(3 * TIMEOUT)]


def built(name: str, sources: Mapping[Path, Sequence[str]], *link: str) -> Path:
    """Compiles sources with the flags of each and links them, unless that is done."""

    def run(*command: str) -> None:
        subprocess.run([*compiled.compiler(), *command], check=True, timeout=TIMEOUT)

    def build(result: Path) -> None:
        def compile_one(source: Path) -> str:
            output = str(result.with_name(f"{source.parent.name}-{source.name}.o"))
            run(*FLAGS, *sources[source], "-c", str(source), "-o", output)
            return output

        with ThreadPoolExecutor(2) as pool:
            objects = list(pool.map(compile_one, sources))
        run(*objects, *link, "-o", str(result))

    read = [
        file
        for folder in (ROOT / "custom_ops", TESTS)
        for file in folder.rglob("*")
        if file.suffix in (".cc", ".cu", ".cuh", ".h", ".inc")
    ]
    return compiled.kept(compiled.KEPT / name, read, [*FLAGS, str(sources), *link], build)


def test_the_emulated_kernels_give_the_bits_of_the_cpu() -> None:
    names = ("parity", "errors", "emulation/main")
    kernels = [*(LIB / "cuda").glob("*.cu"), *(TESTS / f"{name}.cc" for name in names)]
    sources = {kernel: [*WARNINGS, *SANITIZE, *EMULATED] for kernel in sorted(kernels)}
    sources |= dict.fromkeys(sorted((LIB / "cpu").glob("*.cc")), SANITIZE)
    program = built("emulated", sources, *SANITIZE)
    done = subprocess.run([program], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_the_emulated_kernels_of_rows_pass_the_tests_of_the_ops() -> None:
    of_tensorflow = [flag.replace("-I", "-isystem", 1) for flag in tf.sysconfig.get_compile_flags()]
    sources = {
        LIB / "cuda" / "rows.cu": [*WARNINGS, *SANITIZE, *EMULATED],
        TESTS / "emulation" / "rows_kernels.cc": ["-fsanitize=address", *of_tensorflow, *EMULATED],
    }
    link = ["-shared", str(library_path()), *tf.sysconfig.get_link_flags(), *SANITIZE]
    library = built("emulated_rows.so", sources, *link)
    program = (
        "import pytest, sys, tensorflow, tf_gc\n"
        f"tensorflow.load_library({str(library)!r})\n"
        "sys.exit(pytest.main(['-q', 'tests/custom_ops/test_rows.py']))"
    )
    # Python is not built with AddressSanitizer, which has to be the first library of a process.
    find = [[*compiled.compiler(), f"-print-file-name=lib{name}.so"] for name in ("asan", "stdc++")]
    first = [subprocess.check_output(command, text=True).strip() for command in find]
    options = {"LD_PRELOAD": " ".join(first), "ASAN_OPTIONS": "detect_leaks=0"}
    command = [sys.executable, "-c", program]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, **options}, timeout=TIMEOUT)
