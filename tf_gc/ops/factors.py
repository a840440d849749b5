"""Wrappers of the ops that send matrices as thin factors (`tf_gc.reduction.factors`)."""

from collections.abc import Sequence

import tensorflow as tf

from tf_gc.ops import _library
from tf_gc.ops._arguments import handles, non_empty


def encode_factors(
    gradients: Sequence[tf.Tensor],
    residuals: Sequence[tf.Variable],
    factors: Sequence[tf.Tensor],
    rows: Sequence[int],
    p_first: Sequence[bool],
    rank: int,
    size: int,
) -> tf.Tensor:
    """Encodes matrices as one of their two factors, and updates their residuals.

    A row of a matrix (where Q is sent: a column) for which the factor is not finite is sent as NaN,
    and its residual does not change.

    Args:
      gradients: of one dtype (float32, float16 or bfloat16), at least one.
      residuals: one initialized float32 variable of the same shape for each.
      factors: for each the float32 vector [1 + rank * (rows + columns)]: whose turn it is, 0 or 1
        (that of the first counts), P and Q. Zeros at the start.
      rows: the rows of each matrix.
      p_first: whether turn 0 sends P of a matrix and turn 1 Q, or the other way round.
      rank: how many columns a factor has, from 1 to 64.
      size: that of the message; at least what each of the turns needs.

    Returns:
      The message, float32 [size].

    Raises:
      ValueError: if there is no gradient, or another number of residuals.
      tf.errors.InvalidArgumentError: if something does not fit the matrices, or the message is too
        short. No residual has changed then.
    """
    return _library.load().tf_gc_encode_factors(
        gradients=non_empty(gradients, "gradients"),
        residuals=handles(residuals, gradients),
        factors=list(factors),
        rows=list(rows),
        p_first=list(p_first),
        rank=rank,
        size=size,
    )


def decode_factors(
    total: tf.Tensor,
    factors: Sequence[tf.Tensor],
    like: Sequence[tf.Tensor],
    rows: Sequence[int],
    p_first: Sequence[bool],
    rank: int,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Decodes the sum of the messages of all replicas.

    Args:
      total: float32 [size], the sum of messages of `encode_factors`.
      factors: those that the messages were encoded with.
      like: tensors of the shapes and the dtype of the sums.
      rows: as in `encode_factors`.
      p_first: likewise.
      rank: likewise.

    Returns:
      For each matrix the sum of what the replicas have sent of it, and its factors for the next
      step. A factor of which the sum is not finite stays as it is.

    Raises:
      tf.errors.InvalidArgumentError: if something does not fit the matrices.
    """
    sums, after = _library.load().tf_gc_decode_factors(
        total=total,
        factors=list(factors),
        like=list(like),
        rows=list(rows),
        p_first=list(p_first),
        rank=rank,
    )
    return sums, after
