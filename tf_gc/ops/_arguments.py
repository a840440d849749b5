"""Parts that the wrappers of the ops share: checks of lists, and attributes."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# The value of the ops' attribute `skip` with which no shard is skipped.
NO_SHARD = -1


def handles(residuals: Sequence[tf.Variable], gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the handles of residuals. ValueError if there are not as many as gradients."""
    if len(gradients) != len(residuals):
        raise ValueError(f"{len(gradients)} gradients need as many residuals, got {len(residuals)}")
    return handles_of(residuals)


def handles_of(residuals: Sequence[tf.Variable]) -> list[tf.Tensor]:
    """Returns the handles of residuals, each of which may be a handle already."""
    return [each if isinstance(each, tf.Tensor) else each.handle for each in residuals]


def as_list(messages: tf.Tensor | Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """Returns a list of tensors with messages. ValueError if it is empty."""
    return non_empty(messages if isinstance(messages, list | tuple) else [messages], "messages")


def non_empty(tensors: Sequence[tf.Tensor], name: str) -> Sequence[tf.Tensor]:
    """Returns `tensors`. ValueError if there are none."""
    if not tensors:
        raise ValueError(f"`{name}` is empty; a bucket has at least one tensor")
    return tensors


def number(threshold: float | str) -> float:
    """Returns a fixed threshold. ValueError for strings."""
    if isinstance(threshold, str):
        raise ValueError(f"threshold must be a number here, got {threshold!r}")
    return threshold


def is_automatic(threshold: float | str) -> bool:
    """Whether scales are automatic. ValueError for strings other than "auto"."""
    if isinstance(threshold, str) and threshold != "auto":
        raise ValueError(f'threshold must be "auto" or a number, got {threshold!r}')
    return threshold == "auto"


def attributes(codec: str, threshold: float | str) -> dict[str, Any]:
    """Returns the ops' attributes for a codec. ValueError for strings other than "auto"."""
    if is_automatic(threshold):
        return {"codec": codec, "automatic": True}
    return {"codec": codec, "automatic": False, "threshold": threshold}
