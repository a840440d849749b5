"""The names that `import tf_gc` gives."""

import importlib
import re
from pathlib import Path

import keras

import tf_gc

API = Path(__file__).parents[1] / "docs" / "api.md"


def test_public_names_exist() -> None:
    assert sorted(tf_gc.__all__) == tf_gc.__all__
    for module in (tf_gc, tf_gc.keras):
        for name in module.__all__:
            assert getattr(module, name).__doc__, f"{module.__name__}.{name}"
    kinds = {getattr(make, "func", make).__name__ for make in tf_gc.params.KINDS.values()}
    assert {"keras", *kinds} < {*tf_gc.__all__}
    assert issubclass(tf_gc.keras.BackupAndRestore, keras.callbacks.BackupAndRestore)
    assert issubclass(tf_gc.keras.CompressionMonitor, keras.callbacks.Callback)


def test_the_api_reference_has_each_public_name() -> None:
    objects = [
        getattr(importlib.import_module(module), name)
        for module, name in re.findall(r"^::: (.+)\.(\w+)$", API.read_text(), re.M)
    ]
    for module in (tf_gc, tf_gc.keras):
        for name in set(module.__all__) - {"keras", "ops"}:
            assert getattr(module, name) in objects, name
