"""Private attributes of TensorFlow and Keras: all are listed, and one that moved is reported."""

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

import tf_gc
from tf_gc._compat import attributes as of_tensorflow
from tf_gc._compat import symbols
from tf_gc._compat.lookup import Attributes, has_attribute, owner_of
from tf_gc.keras import keras2 as of_keras2
from tf_gc.keras.keras3 import private as of_keras

PACKAGE = Path(tf_gc.__file__).parent
LISTED = (*of_tensorflow.ATTRIBUTES, *of_keras.ATTRIBUTES, *of_keras2.ATTRIBUTES)
NAMES = {name for attributes in LISTED for name in attributes.purposes}
# Python documents them in spite of their names.
PUBLIC = {"_current_frames", "_exit"}
ASKING = ("getattr", "hasattr", "setattr", "hook", "hook_in_replica")


def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_self(node: ast.expr) -> bool:
    text = ast.unparse(node)
    return text in ("self", "cls") or text.startswith("super(")


def own_names(tree: ast.AST) -> Iterator[str]:
    """The names that code defines: functions, classes, variables, attributes of `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and (is_self(node.value) or node.attr.startswith("_tf_gc_"))
        ):
            yield node.attr


def used_names(node: ast.AST) -> Iterator[str]:
    """The attribute that an expression uses, as `x.name`, by `getattr(x, "name")` or in a hook."""
    if isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ASKING:
        yield from (str(name.value) for name in node.args[1:2] if isinstance(name, ast.Constant))


def our_classes() -> list[type]:
    """The classes of tf_gc that extend one of TensorFlow or Keras."""
    found: dict[str, type] = {}
    for path in trees():
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for value in vars(importlib.import_module(module.removesuffix(".__init__"))).values():
            if isinstance(value, type) and is_ours(value) and any(foreign_bases(value)):
                found[f"{value.__module__}.{value.__qualname__}"] = value
    return list(found.values())


def is_ours(owner: type) -> bool:
    return owner.__module__.split(".")[0] == "tf_gc"


def foreign_bases(owner: type) -> Iterator[type]:
    for base in owner.__mro__:
        if base.__module__.split(".")[0] in ("tensorflow", "keras"):
            yield base


def test_attributes_of_others_are_listed() -> None:
    """An attribute that tf_gc nowhere defines is one of TensorFlow or Keras."""
    ours = {name for tree in trees().values() for name in own_names(tree)}
    missing = [
        f"{path.relative_to(PACKAGE)}: {ast.unparse(node)}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        for name in used_names(node)
        if is_private(name) and name not in ours | NAMES | PUBLIC
    ]
    assert missing == []


@pytest.mark.parametrize("owner", our_classes(), ids=lambda owner: owner.__qualname__)
def test_inherited_attributes_are_listed(owner: type) -> None:
    """One of a class's bases lists each attribute that it uses, assigns or overrides of them."""
    used: set[str] = set()
    for base in filter(is_ours, owner.__mro__):
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(base)))
        used.update(own_names(tree))
        used.update(
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and is_self(node.value)
        )
    bases = list(foreign_bases(owner))
    listed: set[str] = set()
    for attributes in LISTED:
        if any(issubclass(base, owner_of(attributes)) for base in bases):
            listed.update(attributes.purposes)
    for name in filter(is_private, used - listed):
        assert not any(has_attribute(base, name) for base in bases), name


def test_the_lists_have_no_more_than_is_used() -> None:
    lists = [Path(module.__file__ or "") for module in (of_tensorflow, of_keras)]
    used: set[str] = set()
    for path, tree in trees().items():
        if path in lists:
            continue
        used.update(own_names(tree))
        used.update(name for node in ast.walk(tree) for name in used_names(node))
    assert used >= NAMES


def made_by(attributes: Attributes) -> Callable[[], Any]:
    """The call that fails if one of these attributes is missing."""
    if attributes in (of_keras.BACKUP, of_keras.RESTORED_MODEL):
        return lambda: tf_gc.keras.BackupAndRestore("backup")
    if attributes is of_keras.EPOCH_ITERATOR:
        return tf_gc.CompressedMultiWorkerMirroredStrategy
    return lambda: tf_gc.CompressedMirroredStrategy(["CPU:0"])


@pytest.mark.parametrize("attributes", LISTED, ids=lambda attributes: attributes.path)
def test_an_attribute_that_is_not_there_is_reported(
    monkeypatch: pytest.MonkeyPatch, attributes: Attributes
) -> None:
    """The list has one more, as if a release had given it another name."""
    monkeypatch.setitem(attributes.groups, "_moved", "to test")  # type: ignore[arg-type]
    with pytest.raises(ImportError) as caught:
        made_by(attributes)()
    versions = f"TensorFlow {tf.__version__} with Keras {keras.__version__}"
    assert f"{attributes.path}._moved (to test), which {versions}" in str(caught.value)


def test_only_what_a_method_assigns_is_an_attribute() -> None:
    class Copies:
        def copy(self, other: Any) -> None:
            self.mine = other.theirs

    assert [has_attribute(Copies, name) for name in ("copy", "mine", "theirs")] == [1, 1, 0]


def test_a_symbol_that_moved_is_reported() -> None:
    """The module imports one that no release has."""
    code = Path(symbols.__file__).read_text().replace("import regroup", "import regroup_of_before")
    message = (
        rf"private part of TensorFlow, which TensorFlow {tf.__version__} .*'regroup_of_before'"
    )
    with pytest.raises(ImportError, match=message):
        exec(code, {})


def test_a_class_that_moved_is_reported() -> None:
    message = rf"tf_gc needs os\.paths \(.* join: to test\), which TensorFlow {tf.__version__} with"
    with pytest.raises(ImportError, match=message):
        owner_of(Attributes("os.paths", {"join": "to test"}))


@pytest.mark.parametrize("version", ["3.9.2", "3.0.5"])
def test_a_keras_that_is_too_old_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras, "__version__", version)
    with pytest.raises(ImportError, match=rf"needs Keras 3\.10 or newer, found {version}"):
        tf_gc.CompressedMirroredStrategy(["CPU:0"])
