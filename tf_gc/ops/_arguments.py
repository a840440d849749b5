"""The arguments that many ops share, checked."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

Tensors = Sequence[tf.Tensor]
Variables = Sequence[tf.Variable]
Messages: TypeAlias = tf.Tensor | Tensors


def as_list(tensors: Messages, name: str = "messages") -> Tensors:
    tensors = tensors if isinstance(tensors, list | tuple) else [tensors]
    if not tensors:
        raise ValueError(f"`{name}` is empty; a bucket has at least one tensor")
    return tensors


def handles(residuals: Variables) -> list[tf.Tensor]:
    return [each if isinstance(each, tf.Tensor) else each.handle for each in residuals]


def bucket(gradients: Tensors, residuals: Variables, may_be_none: bool = False) -> dict[str, Any]:
    gradients = as_list(gradients, "gradients")
    # TensorFlow's own error does not name them.
    if len(gradients) != len(residuals) and (residuals or not may_be_none):
        needed = f"{len(gradients)} residuals{' or none' if may_be_none else ''}"
        raise ValueError(f"{len(gradients)} gradients need {needed}, got {len(residuals)}")
    return {"gradients": gradients, "residuals": handles(residuals)}


def is_automatic(threshold: float | str) -> bool:
    if isinstance(threshold, str) and threshold != "auto":
        raise ValueError(f'threshold must be "auto" or a number, got {threshold!r}')
    return threshold == "auto"


def attributes(codec: str, threshold: float | str) -> dict[str, Any]:
    automatic = is_automatic(threshold)
    fixed = {} if automatic else {"threshold": threshold}
    return {"codec": codec, "automatic": automatic, **fixed}
