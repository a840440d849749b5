"""The rules of structure: imports go downward, private symbols have one home."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tf_gc"

# From the top. A module imports from its own layer and those below.
LAYERS = [
    *("planner", "server", "parameter_server", "strategies", "keras", "cluster", "steps"),
    *("observe", "schedule", "params", "reducers", "network", "codecs", "ops"),
    *("gradients", "state", "launch", "_compat", "_requirements"),
]

# The rooms of the native code, from the top. A file includes files of its own room and of those
# with a higher number.
ROOMS = {
    "custom_ops/kernels": 0,
    "custom_ops/ops": 1,
    "custom_ops/lib/c_api": 2,
    "custom_ops/lib/compact": 3,
    "custom_ops/lib/low_rank": 3,
    "custom_ops/lib/rows": 3,
    "custom_ops/lib/cpu": 4,
    "custom_ops/lib/cuda": 4,
    "custom_ops/lib/deadlines": 4,
    "custom_ops/lib/recorder": 4,
    "custom_ops/lib/codec": 5,
    "custom_ops/lib/wire": 6,
    "custom_ops/lib/numbers": 7,
}

# Which modules may name what is private in a library.
PRIVATE_HOMES = {
    re.compile(r"tensorflow\.(python|core)\b"): ("tf_gc/_compat/",),
    re.compile(r"keras\.src\b"): ("tf_gc/keras/keras3/private.py",),
}
KERAS_HOME = PACKAGE / "keras"

MAX_LINES = 400
SOURCE_SUFFIXES = {".py", ".bzl", ".cc", ".h", ".inc", ".cu", ".cuh", ".sh"}
SOURCE_FILES = {"BUILD", "Makefile", "MODULE.bazel"}

MODULES = sorted(PACKAGE.rglob("*.py"))
NATIVE_FILES = sorted(path for path in (ROOT / "custom_ops").rglob("*") if path.is_file())


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of every module (or name in one) imported."""
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            yield from ((node.lineno, ".".join([*base, alias.name])) for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_imports_go_downward(path: Path) -> None:
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    if own in ("__init__", "_public"):  # they gather the public names of all layers
        return
    for line, name in imports(path):
        package, *target = name.split(".")
        if package == "tf_gc":
            where = f"{relative(path)}:{line} imports {name}"
            assert {*target[:1]} & {*LAYERS}, f"{where}: not from a layer"
            above = LAYERS.index(target[0]) < LAYERS.index(own)
            assert not above, f"{where}: that layer is above {own}"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_private_symbols_have_one_home(path: Path) -> None:
    names = list(imports(path))
    # importlib.import_module("...") and attribute access, tf.python.…, count too.
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            names += [(node.lineno, word) for word in node.value.split()[:1]]
        elif isinstance(node, ast.Attribute):
            names.append((node.lineno, re.sub(r"^tf\.", "tensorflow.", ast.unparse(node))))
    for line, name in names:
        for private, homes in PRIVATE_HOMES.items():
            if private.match(name):
                assert relative(path).startswith(homes), f"{relative(path)}:{line} names {name}"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_only_the_keras_layer_knows_keras(path: Path) -> None:
    if KERAS_HOME in path.parents:
        return
    for line, name in imports(path):
        where = f"{relative(path)}:{line} imports {name}"
        assert name.split(".")[0] not in ("keras", "tf_keras"), where
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute):
            assert ast.unparse(node) != "tf.keras", f"{relative(path)}:{node.lineno} uses tf.keras"


# A distributed variable looks for an attribute that it lacks in its value, and so reads all of it,
# by a collective if workers share it. These are no variables; `vars` asks those, and reads nothing.
NO_VARIABLES = {
    *("c", "callback", "callbacks", "cluster_resolver", "communication_options"),
    "distribute_strategy",
    *("gradient", "graph", "iterator", "kind", "layer", "library", "member", "model", "Model"),
    *("module", "optimizer", "owner", "params", "pattern", "self", "strategy", "total", "type"),
    "_distributed_dataset",
}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_no_variable_is_asked_for_what_it_may_lack(path: Path) -> None:
    for node in nodes_of(path):
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func)
        if function == "hasattr" or (function == "getattr" and len(node.args) == 3):
            asked = ast.unparse(node.args[0])
            named = asked.partition("(")[0].rpartition(".")[2]
            assert named in NO_VARIABLES, f"{relative(path)}:{node.lineno} asks {asked}"


@pytest.mark.parametrize("path", NATIVE_FILES, ids=relative)
def test_includes_go_downward(path: Path) -> None:
    own = relative(path.parent)
    assert own in ROOMS, f"{own} is not in the list of rooms"
    included = re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)', path.read_text("utf-8"), re.M)
    for name in included:
        where = f"{relative(path)} includes {name}"
        if name.startswith("custom_ops/"):
            assert (ROOT / name).is_file(), where
            room = name.rpartition("/")[0]
            below = room == own or ROOMS[room] > ROOMS[own]
            assert below, f"{where}: that room is not below {own}"
        elif own.startswith("custom_ops/lib/"):
            outside = ("tensorflow/", "absl/", "tsl/", "xla/")
            assert not name.startswith(outside), f"{where}: the library has no TensorFlow"


def test_files_are_short() -> None:
    top = [path for path in ROOT.iterdir() if path.name not in ("build", "dist")]
    paths = [file for path in top if path.name[0] != "." for file in (path, *path.rglob("*"))]
    sources = [p for p in paths if p.suffix in SOURCE_SUFFIXES or p.name in SOURCE_FILES]
    lengths = {relative(path): len(path.read_text().splitlines()) for path in sources}
    assert lengths
    assert {path: n for path, n in lengths.items() if n > MAX_LINES} == {}
