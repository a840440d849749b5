"""How tf_gc takes private symbols and attributes of TensorFlow and Keras.

Whatever moved or vanished in a release gives one readable `ImportError` instead of an
`AttributeError` in the middle of a training step.
"""

import dataclasses
import dis
import functools
import importlib
import importlib.metadata
import inspect
import types
from collections.abc import Mapping
from typing import Any

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Attributes:
    """The attributes of a class and of its instances that tf_gc relies on."""

    path: str  # the class's module and name
    groups: Mapping[str, str]  # names of attributes, and why tf_gc needs them

    @property
    def purposes(self) -> dict[str, str]:
        """For each attribute, why tf_gc needs it."""
        return {name: purpose for names, purpose in self.groups.items() for name in names.split()}


def owner_of(attributes: Attributes) -> Any:
    """Returns the class that is to have attributes, or raises an ImportError that says why."""
    module, _, name = attributes.path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        first, purpose = next(iter(attributes.purposes.items()))
        what = f"{attributes.path} (the class with {first}: {purpose})"
        raise unsupported(what, f": {error}") from None


def require(*attributes: Attributes) -> None:
    """Checks that classes, or their instances, have attributes, or raises an ImportError.

    It names the attribute, its purpose, and the versions.
    """
    for of_class in attributes:
        owner = owner_of(of_class)
        for name, purpose in of_class.purposes.items():
            if not has_attribute(owner, name):
                raise unsupported(f"{of_class.path}.{name} ({purpose})")


def has_attribute(owner: type, name: str) -> bool:
    """Returns whether a class has an attribute, or a method of it or of a base assigns it."""
    members = (member for base in owner.__mro__ for member in vars(base).values())
    functions = (inspect.unwrap(getattr(member, "__func__", member)) for member in members)
    return hasattr(owner, name) or any(
        isinstance(function, types.FunctionType) and _stores(function.__code__, name)
        for function in functions
    )


def unsupported(what: str, details: str = "") -> ImportError:
    """Returns the error for what TensorFlow or Keras does not have, with its purpose."""
    try:
        keras = importlib.metadata.version("keras")
    except importlib.metadata.PackageNotFoundError:  # under another name, such as keras-nightly
        keras = "of unknown version"
    return ImportError(
        f"tf_gc needs {what}, which TensorFlow {tf.__version__} with Keras {keras} does not have"
        f"{details}. This pair of versions is not supported; see the README for those that are."
    )


@functools.cache  # each strategy asks for the same ones
def _stores(code: types.CodeType, name: str) -> bool:
    return (
        name in code.co_names
        and any(i.opname == "STORE_ATTR" and i.argval == name for i in dis.get_instructions(code))
    ) or any(_stores(each, name) for each in code.co_consts if isinstance(each, types.CodeType))
