"""Wrappers of the ops that send matrices as thin factors (`tf_gc.reducers.factors`)."""

from collections.abc import Sequence

import tensorflow as tf

from tf_gc.ops import _loader
from tf_gc.ops._arguments import handles, non_empty


def project_factors(
    gradients: Sequence[tf.Tensor],
    residuals: Sequence[tf.Variable],
    factors: Sequence[tf.Tensor],
    rows: Sequence[int],
    rank: int,
) -> tf.Tensor:
    """Multiplies matrices, gradient plus residual, with their factors Q.

    Args:
      gradients: of one dtype (float32, float16 or bfloat16), at least one.
      residuals: one initialized float32 variable of the same shape for each. They do not change.
      factors: for each a float32 vector [rank * columns], the columns of Q, which are orthonormal;
        zeros at the start.
      rows: the rows of each matrix.
      rank: how many columns a factor has, from 1 to 64.

    Returns:
      The columns of P of all matrices, float32 [rank * all rows]. A row that is not finite is zero.

    Raises:
      ValueError: if there is no gradient, or another number of residuals.
      tf.errors.InvalidArgumentError: if something does not fit the matrices.
    """
    return _loader.load().tf_gc_project_factors(
        gradients=non_empty(gradients, "gradients"),
        residuals=handles(residuals, gradients),
        factors=list(factors),
        rows=list(rows),
        rank=rank,
    )


def encode_factors(
    gradients: Sequence[tf.Tensor],
    residuals: Sequence[tf.Variable],
    total: tf.Tensor,
    rows: Sequence[int],
    rank: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Multiplies the transposed matrices with P, and updates the residuals.

    A column of a matrix for which Q is not finite is sent as NaN, and its residual stays.

    Args:
      gradients: as in `project_factors`.
      residuals: likewise.
      total: the sum of all replicas' results of `project_factors`.
      rows: likewise.
      rank: likewise.

    Returns:
      The columns of Q of all matrices, float32 [rank * all columns], and the columns of P, made
      orthonormal, float32 [rank * all rows].

    Raises:
      ValueError: if there is no gradient, or another number of residuals.
      tf.errors.InvalidArgumentError: if something does not fit the matrices. No residual has
        changed then.
    """
    message, basis = _loader.load().tf_gc_encode_factors(
        gradients=non_empty(gradients, "gradients"),
        residuals=handles(residuals, gradients),
        total=total,
        rows=list(rows),
        rank=rank,
    )
    return message, basis


def decode_factors(
    total: tf.Tensor,
    basis: tf.Tensor,
    factors: Sequence[tf.Tensor],
    like: Sequence[tf.Tensor],
    rows: Sequence[int],
    rank: int,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Multiplies both factors, and makes the factors of the next step.

    Args:
      total: the sum of all replicas' first results of `encode_factors`.
      basis: the second result of `encode_factors`, which all replicas have alike.
      factors: the factors that went into `project_factors`.
      like: tensors of the shapes and the dtype of the sums.
      rows: as in `project_factors`.
      rank: likewise.

    Returns:
      For each matrix the sum of what the replicas have sent of it, and its factor Q for the next
      step. Where the sum is not finite, the factor stays as it is.

    Raises:
      tf.errors.InvalidArgumentError: if something does not fit the matrices.
    """
    sums, after = _loader.load().tf_gc_decode_factors(
        total=total,
        basis=basis,
        factors=list(factors),
        like=list(like),
        rows=list(rows),
        rank=rank,
    )
    return sums, after
