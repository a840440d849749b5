"""The rules of structure: imports go downward, private symbols have one home."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tf_gc"

# From the top. A module imports from its own layer and those below.
LAYERS = [
    "distribute",
    "keras",
    "schedule",
    "params",
    "reduction",
    "residuals",
    "warm_up",
    "codecs",
    "ops",
    "_compat",
]

PRIVATE = re.compile(r"(tensorflow\.python|keras\.src)\b")

MAX_LINES = 400
SOURCE_SUFFIXES = {".py", ".cc", ".h", ".inc", ".cu", ".sh"}
SOURCE_FILES = {"BUILD", "Makefile", "MODULE.bazel"}
SKIPPED_DIRECTORIES = {"build", "dist", "__pycache__"}

MODULES = sorted(PACKAGE.rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def layer(module: str) -> int | None:
    """The layer of a dotted module name, None for tf_gc itself."""
    parts = module.split(".")
    return LAYERS.index(parts[1]) if len(parts) > 1 else None


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of every module (or name in one) imported."""
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            yield from ((node.lineno, ".".join([*base, alias.name])) for alias in node.names)


def is_ours(name: str) -> bool:
    return name == "tf_gc" or name.startswith("tf_gc.")


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_imports_go_downward(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    own = layer(module)
    if own is None:  # tf_gc/__init__.py gathers the public names of all layers
        return
    for line, name in imports(path):
        if not is_ours(name):
            continue
        where = f"{relative(path)}:{line} imports {name}"
        target = name.split(".")
        assert set(target[1:2]) & set(LAYERS), f"{where}: not from a layer"
        assert LAYERS.index(target[1]) >= own, f"{where}: that layer is above {LAYERS[own]}"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_private_symbols_are_imported_in_compat_only(path: Path) -> None:
    if path == PACKAGE / "_compat.py":
        return
    for line, name in imports(path):
        assert not PRIVATE.match(name), f"{relative(path)}:{line} imports {name}"
    # importlib.import_module("...") and attribute access, tf.python.…, count too.
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not PRIVATE.fullmatch(node.value.strip().split("\n")[0].split(" ")[0]), (
                f"{relative(path)}:{node.lineno} names {node.value}"
            )
        elif isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            assert text not in ("tf.python", "tensorflow.python", "keras.src"), (
                f"{relative(path)}:{node.lineno} uses {text}"
            )


def test_lib_includes_no_tensorflow() -> None:
    for path in sorted((ROOT / "custom_ops" / "lib").iterdir()):
        for line in path.read_text(encoding="utf-8").splitlines():
            include = re.match(r'\s*#\s*include\s*[<"]([^>"]+)', line)
            if include:
                assert not include[1].startswith(("tensorflow/", "absl/", "tsl/", "xla/")), (
                    f"{relative(path)} includes {include[1]}"
                )


def test_files_are_short() -> None:
    def sources(directory: Path) -> Iterator[Path]:
        for path in directory.iterdir():
            hidden = path.name.startswith(".") or path.name in SKIPPED_DIRECTORIES
            if path.is_dir():
                if not hidden:
                    yield from sources(path)
            elif path.suffix in SOURCE_SUFFIXES or path.name in SOURCE_FILES:
                yield path

    lengths = {relative(path): len(path.read_text().splitlines()) for path in sources(ROOT)}
    assert lengths
    assert {path: n for path, n in lengths.items() if n > MAX_LINES} == {}
