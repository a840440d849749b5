"""Gradient compression for distributed Keras and TensorFlow training."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from tf_gc import _requirements  # noqa: F401  (what is missing is said first)

if TYPE_CHECKING:
    from tf_gc._public import *  # noqa: F403

__version__ = "0.1.0"

__all__ = [  # noqa: F405
    "Auto",
    "ByVariable",
    "Cast",
    "CompressedAllReduce",
    "CompressedMirroredStrategy",
    "CompressedMultiWorkerMirroredStrategy",
    "CompressedParameterServerStrategy",
    "LowRank",
    "NoCompression",
    "OneBit",
    "Quantized",
    "SlurmClusterResolver",
    "TwoBit",
    "all_reduce_gradients",
    "keras",
    "ops",
    "push_gradients",
    "run_server",
]


def __getattr__(name: str) -> Any:
    """Loads the public names when one is first used (PEP 562); the launcher uses none."""
    if name in ("keras", "ops", "params"):
        return importlib.import_module(f"{__name__}.{name}")
    if name in __all__:
        return getattr(importlib.import_module(f"{__name__}._public"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if "tensorflow" in sys.modules:  # a server that the program starts has to find the native ops
    importlib.import_module(f"{__name__}._public")
