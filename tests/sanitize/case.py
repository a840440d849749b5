"""A call of an op with something wrong in it, or nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tests.sanitize.bucket_model import Bucket
from tests.sanitize.wire_model import Rng

BAD_THRESHOLDS = [float("nan"), float("inf"), -float("inf"), 2.0**120, 3e38, -(2.0**120)]


@dataclasses.dataclass
class Case:
    """A call, what is wrong with it, and what it gives if nothing is.

    `problems` are patterns of what an error may say; with `any_error`, of any kind. With
    `either` it may fail or not.
    """

    op: str
    inputs: dict[str, Any]
    problems: list[str]
    check: Callable[[Any], None]
    bucket: Bucket | None = None
    any_error: bool = False
    either: bool = False


def hostile(attributes: dict[str, Any], rng: Rng) -> tuple[dict[str, Any], list[str]]:
    """Makes one attribute a value that it must not have; one time in five."""
    if rng.integers(5):
        return attributes, []
    names = [name for name in attributes if name != "automatic"]
    name = names[rng.integers(len(names))]
    bad: list[Any] = {
        "codec": ["", "five_bit", "TWO_BIT", "two_bit\0"],
        "sum_codec": ["", "five_bit", "one_bi"],
        "threshold": BAD_THRESHOLDS,
        "shards": [0, -1, -(2**63)],
        "replicas": [0, -1, -(2**63)],
        "shard": [-1, attributes.get("shards", 0), 2**62],
        "periods": [[0], [3, -1], [4097], [2**62], [1, 2, 3, 4, 5]],
        "skip": [-2, attributes.get("shards", 0), 2**62],
    }[name]
    return {**attributes, name: bad[rng.integers(len(bad))]}, [name]
