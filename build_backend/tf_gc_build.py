"""The build backend of tf_gc: setuptools, and a search for TensorFlow.

The op library works with the TensorFlow minor version it was compiled against and
no other, so it has to be compiled against the TensorFlow of the environment it is
installed into. Installers build in an isolated environment, but pip runs it with
the interpreter of the real one: that interpreter is asked first. Only where it has
no TensorFlow is one required for the build.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (the hooks that stay as they are)
from tf_gc_cuda import WHEELS

# The requirement where there is no TensorFlow; on pip's command line
# `--config-settings tensorflow=tensorflow-cpu` names another one.
DEFAULT_TENSORFLOW = "tensorflow>=2.16"

# Names the distribution that owns the package `tensorflow`: tensorflow,
# tensorflow-cpu, tf-nightly, ... without importing it, which takes seconds.
_FIND = """
import importlib.metadata, importlib.util, json
found = None
if importlib.util.find_spec("tensorflow") is not None:
    for dist in importlib.metadata.distributions():
        files = "\\n" + (dist.read_text("RECORD") or "")
        if "\\ntensorflow/__init__.py," in files:
            found = [dist.metadata["Name"].replace("_", "-").lower(), dist.version]
            break
    else:
        import tensorflow
        found = ["tensorflow", tensorflow.__version__]
print(json.dumps(found))
"""

_FLAGS = """
import json, tensorflow as tf
print(json.dumps([tf.__version__, tf.sysconfig.get_compile_flags(),
                  tf.sysconfig.get_link_flags(),
                  bool(tf.sysconfig.get_build_info().get("is_cuda_build"))]))
"""


class TensorFlow(NamedTuple):
    """A TensorFlow to build against, and the interpreter that has it."""

    distribution: str
    version: str  # of the distribution
    isolated: bool  # found in the build's environment, not the interpreter's own


class Flags(NamedTuple):
    """The flags with which a TensorFlow says to compile and link against it."""

    version: str  # tf.__version__
    compile: list[str]
    link: list[str]
    cuda: bool  # whether it was built for CUDA


def _ask(script: str, isolated: bool) -> Any:
    """Runs `script` in the interpreter's own or in the build's environment."""
    # -E drops PYTHONPATH, by which pip adds the build's environment. The working
    # directory must not shadow a module: `-c` puts it first on the path.
    command = [sys.executable, *([] if isolated else ["-E"]), "-c", script]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    run = subprocess.run(
        command, env=environment, cwd=os.path.abspath(os.sep), capture_output=True, text=True
    )
    if run.returncode:
        raise RuntimeError(f"TensorFlow is installed but fails to import:\n{run.stderr}")
    return json.loads(run.stdout.splitlines()[-1])


@functools.cache
def find_tensorflow() -> TensorFlow | None:
    """Returns the TensorFlow to build against, or None if there is none.

    TF_GC_TENSORFLOW names a folder with one for another processor, which CXX compiles for.
    """
    if folder := os.environ.get("TF_GC_TENSORFLOW"):
        (info,) = Path(folder).glob("tensorflow-*.dist-info")
        return TensorFlow("tensorflow", info.stem.split("-")[1], isolated=False)
    for isolated in (False, True):
        found = _ask(_FIND, isolated)
        if found is not None:
            return TensorFlow(*found, isolated)
    return None


def flags(tensorflow: TensorFlow) -> Flags:
    """Imports TensorFlow, in another process, and returns its flags."""
    if folder := os.environ.get("TF_GC_TENSORFLOW"):
        package = f"{folder}/tensorflow"
        own = ["-D_GLIBCXX_USE_CXX11_ABI=1", "-DEIGEN_MAX_ALIGN_BYTES=64"]
        link = [f"-L{package}", "-l:libtensorflow_framework.so.2"]
        return Flags(tensorflow.version, [f"-I{package}/include", *own], link, cuda=False)
    return Flags(*_ask(_FLAGS, tensorflow.isolated))


def cuda_wheels() -> list[str]:
    """Returns the directories of the package `nvidia`, which has NVIDIA's wheels."""
    return [path for isolated in (False, True) for path in _ask(WHEELS, isolated)]


def requirement(tensorflow: TensorFlow | None) -> str:
    """Returns the requirement that an op library built against `tensorflow` has.

    Any release of the same minor version that is not older, of the same
    distribution: who has `tensorflow-cpu` does not get `tensorflow` as well. A
    nightly or a release candidate fits only itself.
    """
    if tensorflow is None:
        return DEFAULT_TENSORFLOW
    name, version, _ = tensorflow
    major, minor, *rest = version.split("+")[0].split(".")
    if not all(part.isdigit() for part in (major, minor, *rest)):
        return f"{name}=={version}"
    return f"{name}>={version.split('+')[0]},<{major}.{int(minor) + 1}"


def wrong_python(major: int, minor: int) -> str | None:
    """Returns why tf_gc is not for a version of Python, or None if it is."""
    text = Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8")
    ((low, high),) = re.findall(r'(?m)^requires-python = ">=3\.(\d+),<3\.(\d+)"$', text)
    if (3, int(low)) <= (major, minor) < (3, int(high)):
        return None
    return f"tf_gc needs Python 3.{low} to 3.{int(high) - 1}, this is {major}.{minor}"


def _build_requirements(config_settings: dict[str, Any] | None) -> list[str]:
    # pip asks this first, and would otherwise look at requires-python when it has TensorFlow.
    if wrong := wrong_python(*sys.version_info[:2]):
        sys.exit(wrong)
    if os.environ.get("TF_GC_LIBRARIES") or find_tensorflow() is not None:
        return []
    return [(config_settings or {}).get("tensorflow", DEFAULT_TENSORFLOW)]


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """PEP 517: what building a wheel needs besides `build-system.requires`."""
    own = _build_requirements(config_settings)
    return own + build_meta.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    """PEP 660: the same for an editable install."""
    own = _build_requirements(config_settings)
    return own + build_meta.get_requires_for_build_editable(config_settings)
