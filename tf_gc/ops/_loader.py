"""Loads the native op library, or says how to rebuild it.

The C++ ABI of TensorFlow changes between minor versions, so a library works with the version it was
compiled against, which `setup.py` writes to `_build_info.py`. A wheel may have several libraries.
"""

import functools
import importlib
import shlex
import sys
import types
from pathlib import Path

import tensorflow as tf


def library_path() -> Path:
    """Returns where the op library is that fits TensorFlow, or where a build would put one."""
    fitting = [name for version, name in _built().items() if _fits(version)]
    return Path(__file__).with_name(fitting[0] if fitting else "_tf_gc_ops.so")


@functools.cache
def load() -> types.ModuleType:
    """Loads the op library, once; returns the op functions that `tf.load_op_library` generates.

    Raises:
      ImportError: if it is missing or does not fit the installed TensorFlow; it names both versions
        and the command that rebuilds the library.
    """
    built, path = _built(), library_path()
    fits = any(map(_fits, built))
    problem = (
        f"tf_gc's native ops were built for TensorFlow {', '.join(built)}, "
        f"found TensorFlow {tf.__version__}"
    )
    if not built or (fits and not path.is_file()):
        problem = f"tf_gc's native ops are not built. Found TensorFlow {tf.__version__}"
    elif not fits and len(built) > 1:
        known = " or ".join(map(_abi, built))
        raise ImportError(
            f"{problem}. Install TensorFlow {known}, or build tf_gc from its sources: "
            "pip install FOLDER_OF_THE_SOURCES"
        )
    elif fits:
        try:
            return tf.load_op_library(str(path))
        except tf.errors.OpError as error:
            # The loader names a mangled symbol, which helps whoever mends it rather than the user.
            reason = error.message.rpartition(": ")[2]
            problem += (
                f", and do not load into it ({reason}): another build of TensorFlow, or a damaged "
                "file"
            )
    raise ImportError(f"{problem}. {how_to_build()}")


def _built() -> dict[str, str]:
    """Returns the libraries' names by the TensorFlow versions that they were built with."""
    try:
        info = importlib.import_module("._build_info", __package__)
    except ModuleNotFoundError:
        return {}
    return dict(info.LIBRARIES)


def _fits(version: str) -> bool:
    return _abi(version) == _abi(tf.__version__)


def _abi(version: str) -> str:
    """Returns the part of a version that two TensorFlows with the same C++ ABI share."""
    parts = version.split("+")[0].split(".")
    # Nightlies and release candidates promise no ABI: only the very same version fits.
    return ".".join(parts[:2]) if all(part.isdigit() for part in parts) else version


def how_to_build() -> str:
    """Returns sentences with the command that builds the library again."""
    parent = Path(__file__).parents[2]
    is_clone = (parent / "setup.py").is_file()
    source = ["-e", str(parent)] if is_clone else ["FOLDER_OF_THE_SOURCES"]
    command = [sys.executable, "-m", "pip", "install", "--force-reinstall", "--no-deps", *source]
    return f"{_what_is_hidden(parent)}To build them, run:\n  {shlex.join(command)}"


def _what_is_hidden(parent: Path) -> str:
    """Returns a sentence if this package, in `parent`, hides one that is installed, else ""."""
    places = (Path(entry or ".") / "tf_gc" / "ops" / library_path().name for entry in sys.path)
    own = library_path().resolve()
    others = [place for place in places if place.is_file() and place.resolve() != own]
    if not others:
        return ""
    return (
        f"The folder {parent} hides the tf_gc that is installed in {others[0].parents[2]}: run the "
        "program from another folder, or build here as well. "
    )
