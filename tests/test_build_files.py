"""setup.py and BUILD build the same library, from all the sources there are."""

import ast
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def setup_py() -> dict[str, Any]:
    """The globals of setup.py, without running setup()."""
    path = list(sys.path)
    try:
        return runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
    finally:
        sys.path[:] = path


@pytest.fixture(scope="module")
def bazel() -> dict[str, dict[str, Any]]:
    """The rules of BUILD: name -> attributes with literal values.

    Starlark is close enough to Python for its parser; globs and sums are left out.
    """
    tree = ast.parse((ROOT / "BUILD").read_text())
    constants: dict[str, Any] = {}
    rules: dict[str, dict[str, Any]] = {}

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return constants[node.id]
        try:
            return ast.literal_eval(node)
        except ValueError:
            return None

    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            constants[statement.targets[0].id] = value(statement.value)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            attributes = {kw.arg: value(kw.value) for kw in statement.value.keywords if kw.arg}
            if "name" in attributes:
                rules[attributes["name"]] = attributes
    return rules


def tree(*suffixes: str) -> list[str]:
    """The files under custom_ops with these suffixes."""
    files = (ROOT / "custom_ops").rglob("*")
    return sorted(file.relative_to(ROOT).as_posix() for file in files if file.suffix in suffixes)


def test_setup_py_lists_every_file(setup_py: dict[str, Any]) -> None:
    sources = setup_py["SOURCES"] + setup_py["CUDA_SOURCES"]
    assert sorted(sources) == tree(".cc", ".cu")
    assert setup_py["HEADERS"] == tree(".h", ".inc", ".cuh")
    assert all("/gpu_" in source for source in setup_py["CUDA_SOURCES"])
    assert not any("/gpu_" in source for source in setup_py["SOURCES"])


def test_build_lists_the_same_files_as_setup_py(
    setup_py: dict[str, Any], bazel: dict[str, dict[str, Any]]
) -> None:
    lib, ops, cuda = bazel["lib"], bazel["tf_gc/ops/_tf_gc_ops.so"], bazel["cuda"]
    listed = lib["srcs"] + lib["hdrs"] + ops["srcs"] + cuda["srcs"]
    lists = setup_py["SOURCES"] + setup_py["CUDA_SOURCES"] + setup_py["HEADERS"]
    assert sorted(listed) == sorted(lists)
    assert all("/gpu_" in file for file in cuda["srcs"])
    assert all(file.startswith("custom_ops/lib/") for file in lib["srcs"] + lib["hdrs"])


def test_build_has_the_flags_of_setup_py(
    setup_py: dict[str, Any], bazel: dict[str, dict[str, Any]]
) -> None:
    for rule in ("lib", "tf_gc/ops/_tf_gc_ops.so"):
        assert bazel[rule]["copts"] == setup_py["CXXFLAGS"]


def test_build_finds_the_installed_tensorflow(setup_py: dict[str, Any]) -> None:
    import tensorflow as tf

    found = setup_py["find_tensorflow"]()
    assert found is not None
    flags = setup_py["flags"](found)
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
    setup_py: dict[str, Any], distribution: str, version: str, expected: str
) -> None:
    found = setup_py["find_tensorflow"]()
    tensorflow = found._replace(distribution=distribution, version=version)
    assert setup_py["requirement"](tensorflow) == expected


def test_without_tensorflow_the_default_is_required(setup_py: dict[str, Any]) -> None:
    assert setup_py["requirement"](None).startswith("tensorflow>=")
