"""setup.py and BUILD build the same library, from all the sources there are."""

import importlib
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cases import matrix

ROOT = Path(__file__).resolve().parents[1]


_path = list(sys.path)
SETUP: dict[str, Any] = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
sys.path[:] = _path


@pytest.fixture(scope="module")
def bazel() -> dict[str, dict[str, Any]]:
    """The attributes of BUILD's rules. Starlark is close enough to Python to run as such."""
    rules: dict[str, dict[str, Any]] = {}

    def rule(**attributes: Any) -> None:
        rules[attributes["name"]] = attributes

    def glob(include: list[str], exclude: Sequence[str] = ()) -> list[str]:
        return sorted(matches(include) - matches(exclude))

    def load(_: str, *names: str) -> None:
        known = runpy.run_path(str(ROOT / "sources.bzl"))
        build.update({name: known.get(name, rule) for name in names})

    ignored = ("package", "licenses", "exports_files")
    build: dict[str, Any] = dict.fromkeys(ignored, lambda *_, **__: None)
    build.update(filegroup=rule, genrule=rule, glob=glob, load=load)
    exec(compile((ROOT / "BUILD").read_text(), "BUILD", "exec"), build)
    return rules


def matches(patterns: Sequence[str]) -> set[str]:
    """The files that patterns match, which start at the root."""
    files = [file for pattern in patterns for file in ROOT.glob(pattern) if file.is_file()]
    return {file.relative_to(ROOT).as_posix() for file in files}


def tree(*suffixes: str) -> list[str]:
    """The files under custom_ops with these suffixes."""
    return sorted(file for file in matches(["custom_ops/**/*"]) if file.endswith(suffixes))


def test_setup_py_builds_every_file() -> None:
    sources = SETUP["SOURCES"] + SETUP["CUDA_SOURCES"]
    assert sorted(sources) == tree(".cc", ".cu")
    assert SETUP["HEADERS"] == tree(".h", ".inc", ".cuh")
    assert len(tree(".cc", ".cu", ".h", ".inc", ".cuh")) == len(matches(["custom_ops/**/*"]))


def test_what_needs_cuda_is_in_files_of_its_own() -> None:
    for file in tree(".cc", ".cu", ".h", ".inc", ".cuh"):
        text = (ROOT / file).read_text(encoding="utf-8")
        needs_cuda = re.search(r'#\s*include [<"](cuda_\w+\.h|custom_ops/lib/cuda/)', text)
        for_cuda = file.startswith(("custom_ops/lib/cuda/", "custom_ops/kernels/gpu_"))
        assert not needs_cuda or for_cuda, file
        if Path(file).suffix in (".cc", ".cu"):
            assert (file in SETUP["CUDA_SOURCES"]) == for_cuda


def test_build_has_the_files_and_flags_of_setup_py(bazel: dict[str, dict[str, Any]]) -> None:
    lib, ops, cuda = bazel["lib"], bazel["tf_gc/ops/_tf_gc_ops.so"], bazel["cuda"]
    listed = lib["srcs"] + lib["hdrs"] + ops["srcs"] + cuda["srcs"]
    lists = SETUP["SOURCES"] + SETUP["CUDA_SOURCES"] + SETUP["HEADERS"]
    assert sorted(listed) == sorted(lists)
    compiled = [file for file in lib["srcs"] + ops["srcs"] if file.endswith(".cc")]
    assert sorted(compiled) == SETUP["SOURCES"]
    assert all(file.startswith("custom_ops/lib/") for file in lib["srcs"] + lib["hdrs"])
    assert lib["copts"] == ops["copts"] == SETUP["CXXFLAGS"]


@matrix
def test_build_finds_the_installed_tensorflow() -> None:
    import tensorflow as tf

    found = SETUP["find_tensorflow"]()
    flags = SETUP["flags"](found)
    assert flags.version == tf.__version__
    assert flags.compile == tf.sysconfig.get_compile_flags()
    assert flags.cuda == tf.sysconfig.get_build_info()["is_cuda_build"]


@pytest.mark.parametrize(
    ("distribution", "version", "expected"),
    [
        ("tensorflow", "2.21.0", "tensorflow>=2.21.0,<2.22"),
        ("tensorflow-cpu", "2.19.1", "tensorflow-cpu>=2.19.1,<2.20"),
        ("tensorflow", "2.21.0+nv25.9", "tensorflow>=2.21.0,<2.22"),
        ("tensorflow", "2.22.0rc1", "tensorflow==2.22.0rc1"),
        ("tf-nightly", "2.23.0.dev20260401", "tf-nightly==2.23.0.dev20260401"),
    ],
)
def test_wheel_requires_the_flavour_and_minor_version_it_was_built_with(
    distribution: str, version: str, expected: str
) -> None:
    found = SETUP["find_tensorflow"]()
    tensorflow = found._replace(distribution=distribution, version=version)
    assert SETUP["requirement"](tensorflow) == expected
    assert SETUP["requirement"](None).startswith("tensorflow>=")  # if there is none


def test_a_python_for_which_tf_gc_is_not_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "build_backend")
    wrong_python = importlib.import_module("tf_gc_build").wrong_python
    assert wrong_python(3, 9) == "tf_gc needs Python 3.10 to 3.13, this is 3.9"
    assert [wrong_python(3, minor) for minor in range(10, 14)] == [None] * 4
    assert wrong_python(3, 14) is not None
