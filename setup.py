"""Builds tf_gc: the Python package and the TensorFlow op library inside it.

Everything that does not depend on the TensorFlow at hand is in pyproject.toml.
Compiler and flags can be set with CXX, CXXFLAGS and LDFLAGS; TF_GC_CUDA and
NVCCFLAGS are for the CUDA kernels (build_backend/tf_gc_cuda.py). For a wheel that
fits several TensorFlows (build_backend/wheels.py), TF_GC_PORTABLE=1 makes op
libraries that older systems load, TF_GC_TENSORFLOW names the folder of a
TensorFlow for another processor, and TF_GC_LIBRARIES the folder with the build
of each, which are then packed as they are.
"""

from __future__ import annotations

import hashlib
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "build_backend"))

from tf_gc_build import Flags, cuda_wheels, find_tensorflow, flags, requirement  # noqa: E402
from tf_gc_cuda import CudaError, Toolkit, toolkit, warnings  # noqa: E402

# The patterns that BUILD uses too.
PATTERNS: dict[str, list[str]] = runpy.run_path(str(ROOT / "sources.bzl"))


def files(*lists: str) -> set[str]:
    """Returns the files that match the patterns of these lists."""
    found = [file for name in lists for pattern in PATTERNS[name] for file in ROOT.glob(pattern)]
    return {file.relative_to(ROOT).as_posix() for file in found}


# Sources of the op library, and of the CUDA kernels, of which g++ compiles .cc and nvcc .cu.
CUDA_SOURCES = sorted(files("CUDA_SOURCES"))
LIB_SOURCES = sorted(files("LIB_SOURCES") - {*CUDA_SOURCES})
OPS_SOURCES = sorted(files("OPS_SOURCES") - {*CUDA_SOURCES})
SOURCES = sorted([*LIB_SOURCES, *OPS_SOURCES])
HEADERS = sorted(files("LIB_HEADERS", "OPS_HEADERS", "CUDA_HEADERS"))

# The ABI that all of our C++ has to share with TensorFlow.
ABI = ["-D_GLIBCXX_USE_CXX11_ABI=1"]
PORTABLE = os.environ.get("TF_GC_PORTABLE") == "1"
PORTABLE_SOURCE = "build_backend/portable.cc"
BUILT = Path(os.environ["TF_GC_LIBRARIES"]).resolve() if os.environ.get("TF_GC_LIBRARIES") else None

CXXFLAGS = ["-O3", "-std=c++17", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra"]

BUILD_INFO = '''"""How setup.py, which wrote this, built the op libraries beside this file."""

# By the version of TensorFlow that a library was built with.
LIBRARIES = {libraries!r}
COMPILER = {compiler!r}
CUDA = {cuda!r}
CXXFLAGS_SHA256 = {digest!r}
'''


def call(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command of the build."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise CompileError(
            f"{command[0]} not found: install g++ (Debian: apt-get install g++) "
            "or name a compiler with CXX"
        ) from None
    except subprocess.CalledProcessError as error:
        raise CompileError(f"{shlex.join(command)}\n{error.stderr}") from None


def digest_of(*parts: str) -> str:
    """Names a way to compile: objects of different ways are kept apart."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def is_fresh(target: Path) -> bool:
    """Whether an object file is newer than all that the compiler read for it."""
    listing = target.with_suffix(".d")
    if not (target.exists() and listing.exists()):
        return False
    built = target.stat().st_mtime
    read = listing.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    return all((ROOT / name).exists() and (ROOT / name).stat().st_mtime < built for name in read)


class BuildOps(build_ext):
    """Compiles SOURCES to one shared library that TensorFlow loads.

    It is not a Python extension module: it has no init function, and its name has
    no Python version in it.
    """

    def get_ext_filename(self, fullname: str) -> str:
        """Returns the file that `fullname` is built into, without an ABI tag."""
        return fullname.replace(".", os.sep) + ".so"

    def run(self) -> None:
        """Builds the library, or takes those that are built; writes _build_info.py beside it."""
        in_place = self.inplace or self.editable_mode
        library = Path(ROOT if in_place else self.build_lib, "tf_gc/ops/_tf_gc_ops.so")
        library.parent.mkdir(parents=True, exist_ok=True)
        if BUILT is not None:
            self.take_built(library.parent)
            return

        tensorflow = find_tensorflow()
        if tensorflow is None:
            raise CompileError("TensorFlow is not installed: pip install tensorflow")
        tf_flags = flags(tensorflow)
        try:
            cuda = toolkit(tf_flags.cuda, cuda_wheels())
        except CudaError as error:
            raise CompileError(str(error)) from None
        compiler = shlex.split(os.environ.get("CXX", "g++"))
        compiler_version = call([*compiler, "--version"]).stdout.splitlines()[0]
        command = [*compiler, *CXXFLAGS, *self.compile_flags(tf_flags)]
        # Objects that know no TensorFlow are the same for all versions of it.
        without = [*compiler, *CXXFLAGS, *self.compile_flags(tf_flags._replace(compile=ABI))]
        lib_sources = [*LIB_SOURCES, *([PORTABLE_SOURCE] if PORTABLE else [])]
        digest = digest_of(*without, compiler_version)
        objects = self.compile(lib_sources, {".cc": without}, digest)
        digest = digest_of(*command, compiler_version, tf_flags.version)
        objects += self.compile(OPS_SOURCES, {".cc": command}, digest)
        ldflags = [*tf_flags.link, *shlex.split(os.environ.get("LDFLAGS", ""))]
        if cuda is not None:
            compilers = self.cuda_compilers(cuda, command)
            digest = digest_of(digest, cuda.version, *compilers[".cc"], *compilers[".cu"])
            sources = [source for source in CUDA_SOURCES if source.endswith(".cc")]
            objects += self.compile(sources, compilers, digest)
            # Kernels know no TensorFlow either.
            sources = [source for source in CUDA_SOURCES if source.endswith(".cu")]
            digest_of_kernels = digest_of(cuda.version, *compilers[".cu"])
            cuda_objects = self.compile(sources, compilers, digest_of_kernels)
            logs = [path.with_suffix(".log").read_text() for path in cuda_objects]
            (ROOT / "build" / "cuda-kernels.log").write_text("".join(logs))
            objects += cuda_objects
            # First: TensorFlow exports the names of the CUDA runtime too, and calls its own.
            ldflags = [*cuda.link_flags(), *ldflags]
        if PORTABLE:
            names = re.findall(r"^OLD\((\w+)", (ROOT / PORTABLE_SOURCE).read_text(), re.MULTILINE)
            ldflags += [f"-Wl,--wrap={name}" for name in names]
        linked = objects[-1].with_name(f"{os.getpid()}.so")
        done = call([*compiler, "-shared", "-o", str(linked), *map(str, objects), *ldflags])
        sys.stderr.write(done.stderr)
        # A running program may have the old file mapped: replace it, don't write into it.
        os.replace(linked, linked.with_name(library.name))
        library.unlink(missing_ok=True)
        shutil.copy(linked.with_name(library.name), library)
        info = BUILD_INFO.format(
            libraries={tf_flags.version: library.name},
            compiler=compiler_version,
            cuda=None if cuda is None else cuda.what_it_builds,
            digest=digest,
        )
        library.with_name("_build_info.py").write_text(info)

    @staticmethod
    def take_built(target: Path) -> None:
        """Copies the libraries of TF_GC_LIBRARIES, which has a folder for each TensorFlow."""
        assert BUILT is not None
        info: dict[str, Any] = {}
        libraries = {}
        for source in sorted(BUILT.glob("*/tf_gc/ops/_tf_gc_ops.so")):
            info = runpy.run_path(str(source.with_name("_build_info.py")))
            (version,) = info["LIBRARIES"]
            libraries[version] = f"_tf_gc_ops_{'_'.join(version.split('.')[:2])}.so"
            shutil.copy(source, target / libraries[version])
        if not libraries:
            raise CompileError(f"TF_GC_LIBRARIES: there is no built library below {BUILT}")
        text = BUILD_INFO.format(
            libraries=libraries,
            compiler=info["COMPILER"],
            cuda=info["CUDA"],
            digest=info["CXXFLAGS_SHA256"],
        )
        (target / "_build_info.py").write_text(text)

    @staticmethod
    def compile_flags(tf_flags: Flags) -> list[str]:
        """TensorFlow's flags, its headers as system headers, then the user's."""
        result = ["-I."]
        for flag in tf_flags.compile:
            # -isystem: warnings are for our own code.
            result += ["-isystem", flag[2:]] if flag.startswith("-I") else [flag]
        return result + shlex.split(os.environ.get("CXXFLAGS", ""))

    @staticmethod
    def cuda_compilers(cuda: Toolkit, command: list[str]) -> dict[str, list[str]]:
        """The commands that compile CUDA_SOURCES, by suffix; `command` compiles the others."""
        includes = [flag for path in cuda.includes for flag in ("-isystem", path)]
        return {".cc": [*command, *includes], ".cu": [cuda.nvcc, "-I.", *cuda.compile_flags()]}

    def compile(
        self, sources: list[str], compilers: dict[str, list[str]], digest: str
    ) -> list[Path]:
        """Compiles what has changed since the same commands last ran; returns all objects."""
        directory = ROOT / "build" / "ops" / digest[:16]
        directory.mkdir(parents=True, exist_ok=True)

        def compile_one(source: str) -> Path:
            name, suffix = os.path.splitext(source)
            target = directory / (name.replace("/", "-") + ".o")
            if not is_fresh(target):
                print(f"compiling {source}", flush=True)
                partial = target.with_suffix(f".{os.getpid()}.o")
                listing = target.with_suffix(".d")
                depfile = ["-MMD", "-MF", str(listing)]
                done = call([*compilers[suffix], *depfile, "-c", source, "-o", str(partial)])
                sys.stderr.write(warnings(done.stderr))
                target.with_suffix(".log").write_text(done.stderr)
                os.replace(partial, target)
            return target

        with ThreadPoolExecutor(self.parallel or min(2, os.cpu_count() or 1)) as pool:
            return list(pool.map(compile_one, sources))


class BuildWheel(bdist_wheel):
    """Names the wheel after the platform alone: no Python version is in what is built."""

    def get_tag(self) -> tuple[str, str, str]:
        """Returns the tags of Python, its ABI and the platform."""
        return "py3", "none", super().get_tag()[2]


if __name__ == "__main__":
    setup(
        packages=find_packages(include=["tf_gc", "tf_gc.*"]),
        ext_modules=[Extension("tf_gc.ops._tf_gc_ops", SOURCES, depends=[*CUDA_SOURCES, *HEADERS])],
        cmdclass={"build_ext": BuildOps, "bdist_wheel": BuildWheel},
        install_requires=[
            # The wheel for several is for whichever of them there is.
            *([requirement(find_tensorflow())] if BUILT is None else []),
            "keras>=3.10",
            "numpy",
            "absl-py",
        ],
    )
