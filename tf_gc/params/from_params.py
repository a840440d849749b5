"""Reads the argument `compression_params`."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tf_gc.params.cast import DTYPES, Cast
from tf_gc.params.compression import CompressionParams
from tf_gc.params.low_rank import LowRank
from tf_gc.params.no_compression import NoCompression
from tf_gc.params.one_bit import OneBit
from tf_gc.params.quantized import Quantized
from tf_gc.params.two_bit import TwoBit

# As in `compression_params={"type": "2bit"}`, MXNet's form and names; the others are ours.
_TYPES: dict[str, type[CompressionParams]] = {
    "none": NoCompression,
    "1bit": OneBit,
    "2bit": TwoBit,
    "quantized": Quantized,
    "low_rank": LowRank,
    **dict.fromkeys(DTYPES, Cast),
}
# The arguments that a type stands for.
_IMPLIED = {name: {"dtype": name} for name in DTYPES}

ParamsT = TypeVar("ParamsT", bound=type[CompressionParams])


def register(kind: str) -> Callable[[ParamsT], ParamsT]:
    """Returns a decorator that makes a class the one of `{"type": kind}`.

    It is for params that contain other params, and so call `from_params` themselves.
    """

    def add(params_class: ParamsT) -> ParamsT:
        _TYPES[kind] = params_class
        return params_class

    return add


def from_params(
    params: CompressionParams | Mapping[str, Any] | None, name: str = "compression_params"
) -> CompressionParams:
    """Returns the value that `compression_params` stands for.

    Args:
      params: `None` for the default `Quantized()`, such a value, or a dict in MXNet's form:
        `{"type": "2bit", "threshold": 0.5}`, `{"type": "1bit"}`, `{"type": "none"}`,
        `{"type": "quantized", "bits": 4}`, `{"type": "bfloat16"}`,
        `{"type": "by_variable", "rules": {"embeddings": {"type": "none"}}}`. Keys other than
        "type" are the arguments of the class.
      name: what the argument is called, for errors.

    Raises:
      ValueError: for an unknown type, an unknown key or a value out of range.
      TypeError: if `params` is none of the above.
    """
    if params is None:
        return Quantized()
    if isinstance(params, CompressionParams):
        return params
    if not isinstance(params, Mapping):
        raise TypeError(
            f"{name} must be None, a value such as tf_gc.Quantized(), or a dict such as "
            f'{{"type": "2bit", "threshold": 0.5}}, got {params!r}'
        )
    arguments = dict(params)
    if "type" not in arguments:
        raise ValueError(f'{name} must have the key "type", one of {sorted(_TYPES)}: {params!r}')
    kind = arguments.pop("type", None)
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ValueError(f'{name}["type"] must be one of {sorted(_TYPES)}, got {kind!r}')
    params_class = _TYPES[kind]
    fields = dataclasses.fields(params_class)  # type: ignore[arg-type]
    implied = _IMPLIED.get(kind, {})
    allowed = [field.name for field in fields if field.name not in implied]
    unknown = sorted(str(key) for key in arguments if key not in allowed)
    if unknown:
        raise ValueError(
            f"unknown keys {unknown} in {name}; type {kind!r} allows {sorted(['type', *allowed])}"
        )
    needed = {field.name for field in fields if field.default is dataclasses.MISSING}
    if missing := sorted(needed - arguments.keys()):
        raise ValueError(f"{name} of type {kind!r} must have the keys {missing}")
    return params_class(**implied, **arguments)
