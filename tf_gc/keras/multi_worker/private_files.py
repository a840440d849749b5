"""Files of this process alone, in a temporary directory that is removed when the process ends."""

import functools
import os
import pathlib
import shutil
import tempfile
import weakref
from typing import Any, TypeVar

PathT = TypeVar("PathT", str, os.PathLike[str])


@functools.cache
def root() -> str:
    """Returns that directory."""
    folder = tempfile.mkdtemp(prefix="tf_gc_")
    weakref.finalize(root, shutil.rmtree, folder, ignore_errors=True)
    return folder


def mirror(path: str | os.PathLike[str], area: str) -> str:
    """Returns where a path, local or a URL, lies in a folder of the temporary directory.

    One that is below that directory is returned as it is.
    """
    text = os.fspath(path)
    if is_below(text, root()):
        return text
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = "", os.path.abspath(text)
    private = os.path.join(root(), area, scheme, os.path.normpath("/" + rest).lstrip("/"))
    return private + "/" if text.endswith("/") else private


def private_path(path: PathT) -> PathT:
    """Returns a path of the same name that is this process's alone, in an existing directory."""
    private = mirror(path, "written")
    os.makedirs(os.path.dirname(private), exist_ok=True)
    same_type: Any = private if isinstance(path, str) else pathlib.Path(private)
    return same_type


def is_private(path: str) -> bool:
    """Returns whether a path is one that `private_path` returned, or below one."""
    return is_below(path, os.path.join(root(), "written"))


def is_below(path: str, folder: str) -> bool:
    """Returns whether a path lies in a folder or its subfolders."""
    return path.startswith(folder.rstrip("/") + "/")
