"""The CUDA kernels, run on the CPU, give the bits of the codec library.

For machines without a GPU. `make test-cuda` runs the same tests, and more, on a GPU.
"""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import compiled
from tests.cases import matrix

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-std=c++17", "-O1", "-ffp-contract=off", f"-I{ROOT}"]
WARNINGS = ["-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Werror"]
# Accesses that are out of bounds or misaligned end the program.
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
LIB = ROOT / "custom_ops" / "lib"
TIMEOUT = 1200  # seconds, of a command


@pytest.mark.timeout(3 * TIMEOUT)
@matrix
def test_the_emulated_kernels_give_the_bits_of_the_cpu() -> None:
    tests = ROOT / "tests" / "gpu"
    library = sorted((LIB / "cpu").glob("*.cc"))
    kernels = sorted((LIB / "cuda").glob("*.cu"))
    names = ("parity", "errors", "emulation/main")
    kernels += [tests / f"{name}.cc" for name in names]
    of_kernels = [*WARNINGS, *SANITIZE, f"-I{tests / 'emulation'}", "-x", "c++"]

    def run(*command: str) -> None:
        subprocess.run([*compiled.compiler(), *command], check=True, timeout=TIMEOUT)

    def link(program: Path) -> None:
        def compile_one(source: Path) -> str:
            output = str(program.with_name(f"{source.parent.name}-{source.name}.o"))
            flags = [*FLAGS, *(of_kernels if source in kernels else SANITIZE)]
            run(*flags, "-c", str(source), "-o", output)
            return output

        with ThreadPoolExecutor(2) as pool:
            objects = list(pool.map(compile_one, kernels + library))
        run(*SANITIZE, *objects, "-o", str(program))

    read = [
        file
        for folder in (ROOT / "custom_ops", tests)
        for file in folder.rglob("*")
        if file.suffix in (".cc", ".cu", ".cuh", ".h", ".inc")
    ]
    program = compiled.kept(compiled.KEPT / "emulated", read, [*FLAGS, *of_kernels], link)
    done = subprocess.run([program], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
