"""Makes a codec from `compression_params`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tf_gc.codecs.base import Codec
from tf_gc.codecs.no_compression import NoCompression
from tf_gc.codecs.one_bit import OneBit
from tf_gc.codecs.two_bit import TwoBit

# MXNet's names for the codecs, as in `compression_params={"type": "2bit"}`.
_CODECS: dict[str, type[Codec]] = {
    "none": NoCompression,
    "1bit": OneBit,
    "2bit": TwoBit,
}


def from_params(params: Codec | Mapping[str, Any] | None) -> Codec:
    """Returns the codec that `compression_params` stands for.

    Args:
      params: `None` for the default `TwoBit()`, a codec, or a dict in MXNet's form:
        `{"type": "2bit", "threshold": 0.5}`, `{"type": "1bit"}`, `{"type": "none"}`. Keys
        other than "type" are the codec's arguments.

    Raises:
      ValueError: for an unknown type, an unknown key or a value out of range.
      TypeError: if `params` is none of the above.
    """
    if params is None:
        return TwoBit()
    if isinstance(params, Codec):
        return params
    if not isinstance(params, Mapping):
        raise TypeError(
            "compression_params must be None, a codec such as tf_gc.TwoBit(), or a dict such as "
            f'{{"type": "2bit", "threshold": 0.5}}, got {params!r}'
        )
    arguments = dict(params)
    kind = arguments.pop("type", None)
    if not isinstance(kind, str) or kind not in _CODECS:
        raise ValueError(
            f'compression_params["type"] must be one of {sorted(_CODECS)}, got {kind!r}'
        )
    codec = _CODECS[kind]
    allowed = [field.name for field in dataclasses.fields(codec)]  # type: ignore[arg-type]
    unknown = sorted(str(key) for key in arguments if key not in allowed)
    if unknown:
        raise ValueError(
            f"unknown keys {unknown} in compression_params; type {kind!r} allows "
            f"{sorted(['type', *allowed])}"
        )
    return codec(**arguments)
