"""Building the CUDA kernels: whether, with which nvcc, for which GPUs.

TF_GC_CUDA=1 builds them and fails if that is not possible, 0 builds for the CPU only. By default
they are built where there is an nvcc and TensorFlow itself was built for CUDA. NVCCFLAGS are
appended to nvcc's flags.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

NVCCFLAGS = [
    "-O3",
    "-std=c++17",
    # The CPU's arithmetic, bit for bit.
    "--fmad=false",
    "-ftz=false",
    "-prec-div=true",
    "-prec-sqrt=true",
    "-Xcompiler=-fPIC,-ffp-contract=off,-Wall,-Wextra",
    # Registers, spills and shared memory of each kernel, for kernels().
    "-Xptxas=-v",
]
# One for each generation from Volta to Hopper; the code of one runs on all GPUs of the same major
# number. Newer ones compile the PTX of the last.
ARCHITECTURES = (70, 75, 80, 90)

_HOW = (
    "Set CUDA_HOME to a CUDA toolkit, put nvcc on PATH, or "
    "`pip install nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-cuda-cccl`"
)
# Where pip puts the toolkit's parts.
WHEELS = """
import importlib.util, json
spec = importlib.util.find_spec("nvidia")
print(json.dumps(list(spec.submodule_search_locations) if spec else []))
"""


class CudaError(Exception):
    """TF_GC_CUDA asks for what is not possible."""


class Toolkit(NamedTuple):
    """A CUDA toolkit."""

    nvcc: str
    version: str
    architectures: tuple[int, ...]
    includes: tuple[str, ...]  # directories
    libraries: tuple[str, ...]  # directories

    @property
    def what_it_builds(self) -> str:
        """Its version and the GPUs; unlike nvcc's path, that says something elsewhere too."""
        targets = ", ".join(f"sm_{number}" for number in self.architectures)
        return f"{self.version} for {targets} and newer"

    def __str__(self) -> str:
        return f"{self.nvcc} {self.what_it_builds}"

    def compile_flags(self) -> list[str]:
        """Returns nvcc's flags."""
        flags = list(NVCCFLAGS)
        for number in self.architectures:
            flags += ["-gencode", f"arch=compute_{number},code=sm_{number}"]
        newest = max(self.architectures)
        flags += ["-gencode", f"arch=compute_{newest},code=compute_{newest}"]
        if "CXX" in os.environ:
            flags += ["-ccbin", shlex.split(os.environ["CXX"])[-1]]
        return flags + shlex.split(os.environ.get("NVCCFLAGS", ""))

    def link_flags(self) -> list[str]:
        """Returns the linker's flags for a CUDA runtime of our own, beside TensorFlow's."""
        # Its names stay inside the library: TensorFlow has loaded another version of them.
        names = ["-lcudart_static", "-Wl,--exclude-libs,ALL", "-ldl", "-lpthread", "-lrt"]
        return [*(f"-L{directory}" for directory in self.libraries), *names]


def toolkit(tensorflow_has_cuda: bool, wheels: Iterable[str]) -> Toolkit | None:
    """Returns what to build the CUDA kernels with, None if they are not built; says which.

    Args:
      tensorflow_has_cuda: whether TensorFlow was built for CUDA.
      wheels: the directories of the package `nvidia`, where `WHEELS` finds them.

    Raises:
      CudaError: if TF_GC_CUDA=1 and there is no nvcc, or one that cannot be used.
    """
    choice = os.environ.get("TF_GC_CUDA", "")
    if choice not in ("", "0", "1"):
        raise CudaError(f"TF_GC_CUDA must be 0, 1 or not set, got {choice!r}")
    if choice == "0" or (choice == "" and not tensorflow_has_cuda):
        reason = "TF_GC_CUDA=0" if choice else "this TensorFlow is not built for CUDA"
        print(f"building for the CPU only: {reason}", flush=True)
        return None
    nvcc = find_nvcc(wheels)
    if nvcc is None:
        if choice == "1":
            raise CudaError(f"TF_GC_CUDA=1, and nvcc was not found. {_HOW}")
        print(f"building for the CPU only: nvcc was not found. {_HOW}", flush=True)
        return None
    found = inspect(nvcc)
    print(f"building CUDA kernels with {found}", flush=True)
    return found


def find_nvcc(wheels: Iterable[str]) -> str | None:
    """Returns the path of nvcc: of CUDA_HOME, on PATH, of a wheel or in the usual place."""
    home = os.environ.get("CUDA_HOME")
    if home:
        return shutil.which("nvcc", path=str(Path(home, "bin")))
    candidates = [path for wheel in wheels for path in sorted(Path(wheel).glob("*/bin"))]
    folders = [os.environ.get("PATH", os.defpath), *map(str, candidates), "/usr/local/cuda/bin"]
    return shutil.which("nvcc", path=os.pathsep.join(folders))


def inspect(nvcc: str) -> Toolkit:
    """Asks an nvcc what it is and where its headers and libraries are."""

    def ask(*arguments: str) -> str:
        run = subprocess.run([nvcc, *arguments], capture_output=True, text=True, check=False)
        if run.returncode:
            raise CudaError(f"{shlex.join([nvcc, *arguments])}\n{run.stdout}{run.stderr}")
        return run.stdout + run.stderr

    version = re.search(r"release ([\d.]+)", ask("--version"))
    known = {int(number) for number in re.findall(r"\bsm_(\d+)\b", ask("--list-gpu-code"))}
    # sm_70 runs on sm_75 too; where both are known one does.
    numbers = [number for number in ARCHITECTURES if number in known]
    if 70 in numbers:
        numbers.remove(75)
    if version is None or not numbers:
        raise CudaError(f"{nvcc} builds for none of {ARCHITECTURES}; use CUDA 11.8 or newer")
    plan = ask("--dryrun", "-c", "-x", "cu", os.devnull)
    flags = {
        name: shlex.split(value)
        for name, value in re.findall(r"(?m)^#\$ (INCLUDES|LIBRARIES)=(.*)$", plan)
    }
    libraries = [flag.removeprefix("-L") for flag in flags.get("LIBRARIES", [])]
    if not any(Path(directory, "libcudart_static.a").is_file() for directory in libraries):
        raise CudaError(f"libcudart_static.a, which belongs to {nvcc}, is in none of {libraries}")
    includes = tuple(flag.removeprefix("-I") for flag in flags.get("INCLUDES", []))
    return Toolkit(nvcc, version[1], tuple(numbers), includes, tuple(libraries))


class Kernel(NamedTuple):
    """The resources that a CUDA kernel needs on an architecture."""

    name: str
    architecture: str
    registers: int
    spilled: int  # bytes of registers that are stored and loaded again
    shared: int  # bytes of shared memory


def kernels(log: str) -> list[Kernel]:
    """Returns what kernels need, as ptxas said."""
    found = []
    name = architecture = ""
    spilled = 0
    for line in log.splitlines():
        if entry := re.search(r"Compiling entry function '(.*)' for '(\w+)'", line):
            name, architecture, spilled = entry[1], entry[2], 0
        elif spill := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled += int(spill[1]) + int(spill[2])
        elif used := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            bytes_shared = int(shared[1]) if shared else 0
            found.append(Kernel(name, architecture, int(used[1]), spilled, bytes_shared))
    return found


def warnings(log: str) -> str:
    """Returns what compilers said, without what kernels() reads."""
    facts = re.compile(r"ptxas info\b.*\n|\s+\d+ bytes stack frame.*\n")
    return "".join(line for line in log.splitlines(keepends=True) if not facts.match(line))


def report(found: Iterable[Kernel]) -> str:
    """Returns a table: a line for each kernel, with its registers on each architecture."""
    by_name: dict[str, dict[str, Kernel]] = {}
    for kernel in found:
        by_name.setdefault(kernel.name, {})[kernel.architecture] = kernel
    names = list(by_name)
    if shutil.which("c++filt"):
        command = ["c++filt", "--no-params"]
        run = subprocess.run(command, input="\n".join(names), capture_output=True, text=True)
        names = [line.removeprefix("void ") for line in run.stdout.splitlines()]
    columns = sorted({architecture for of in by_name.values() for architecture in of})
    lines = ["  ".join(["registers:", *columns, "spilled", "shared", "bytes"])]
    for name, of in sorted(zip(names, by_name.values(), strict=True), key=lambda pair: pair[0]):
        registers = "  ".join(f"{of[c].registers:5}" if c in of else " " * 5 for c in columns)
        spilled = max(kernel.spilled for kernel in of.values())
        shared = max(kernel.shared for kernel in of.values())
        name = re.sub(r"tf_gc::|gpu::|\(anonymous namespace\)::", "", name)
        lines.append(f"{'':10}  {registers}  {spilled:7}  {shared:6}  {name}")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Prints the path of nvcc or, given files with ptxas' output, a report. 0 if all is well."""
    if not arguments:
        spec = importlib.util.find_spec("nvidia")
        nvcc = find_nvcc(spec.submodule_search_locations or [] if spec else [])
        print(nvcc or f"nvcc was not found. {_HOW}")
        return int(nvcc is None)
    found = [kernel for path in arguments for kernel in kernels(Path(path).read_text())]
    print(report(found))
    spilling = sum(kernel.spilled > 0 for kernel in found)
    print(f"{len(found)} kernels and architectures, {spilling} with spilled registers")
    return int(not found or spilling > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
