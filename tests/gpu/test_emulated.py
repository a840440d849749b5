"""The CUDA kernels, run on the CPU, give the bits of the codec library.

For machines without a GPU. `make test-cuda` runs the same tests, and more, on a GPU.
"""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-std=c++17", "-O1", "-ffp-contract=off", f"-I{ROOT}"]
WARNINGS = ["-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Werror"]
# Accesses that are out of bounds or misaligned end the program.
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
LIBRARY = ["avx2.cc", "avx512.cc", "codec.cc", "scalar.cc"]
TIMEOUT = 600  # seconds


def test_the_emulated_kernels_give_the_bits_of_the_cpu(tmp_path: Path) -> None:
    compiler = os.environ.get("CXX", "g++")
    tests = ROOT / "tests" / "gpu"
    library = [ROOT / "custom_ops" / "lib" / name for name in LIBRARY]
    kernels = sorted((ROOT / "custom_ops" / "lib").glob("gpu_*.cu"))
    kernels += [tests / "parity.cc", tests / "errors.cc", tests / "emulation" / "main.cc"]

    def build(source: Path) -> Path:
        output = tmp_path / f"{source.stem}.o"
        flags = list(FLAGS)
        if source in kernels:
            flags += [*WARNINGS, *SANITIZE, f"-I{tests / 'emulation'}", "-x", "c++"]
        command = [compiler, *flags, "-c", str(source), "-o", str(output)]
        subprocess.run(command, check=True, timeout=TIMEOUT)
        return output

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(build, kernels + library))
    program = tmp_path / "emulated"
    subprocess.run(
        [compiler, *SANITIZE, *map(str, objects), "-o", str(program)],
        check=True,
        timeout=TIMEOUT,
    )
    run = subprocess.run([program], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert (run.returncode, run.stdout) == (0, "ok\n"), run.stderr
