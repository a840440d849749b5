"""Wrappers of the ops that send matrices as thin factors (`tf_gc.reducers.factors`).

`rows` has the rows of each matrix, and `rank` is how many columns a factor has, from 1 to 64.
Factors are float32 vectors of columns, those of all matrices one after the other in messages.
Arguments that do not fit the matrices raise `tf.errors.InvalidArgumentError`.
"""

from collections.abc import Sequence

import tensorflow as tf

from tf_gc.ops import _loader
from tf_gc.ops._arguments import Tensors, Variables, bucket


def project_factors(
    gradients: Tensors, residuals: Variables, factors: Tensors, rows: Sequence[int], rank: int
) -> tf.Tensor:
    """Multiplies matrices, gradient plus residual, with their factors Q.

    `factors` has for each matrix the columns of Q, [rank * columns], which are orthonormal; zeros
    at the start. Residuals do not change. Returns the columns of P, [rank * all rows]. A row that
    is not finite is zero.
    """
    return _loader.load().tf_gc_project_factors(
        **bucket(gradients, residuals), factors=factors, rows=rows, rank=rank
    )


def encode_factors(
    gradients: Tensors, residuals: Variables, total: tf.Tensor, rows: Sequence[int], rank: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Multiplies the transposed matrices with P, and updates the residuals.

    `total` is the sum of all replicas' results of `project_factors`. Returns the columns of Q,
    [rank * all columns], and the columns of P, made orthonormal, [rank * all rows]. A column of a
    matrix for which Q is not finite is sent as NaN, and its residual stays.
    """
    return _loader.load().tf_gc_encode_factors(
        **bucket(gradients, residuals), total=total, rows=rows, rank=rank
    )


def decode_factors(
    total: tf.Tensor,
    basis: tf.Tensor,
    factors: Tensors,
    like: Tensors,
    rows: Sequence[int],
    rank: int,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Multiplies both factors, and makes the factors of the next step.

    `total` is the sum of all replicas' first results of `encode_factors`, and `basis` the second
    one, which all replicas have alike; `factors` went into `project_factors`. Returns for each
    matrix the sum of what the replicas have sent of it, as `like`, and its factor Q for the next
    step. Where the sum is not finite, the factor stays as it is.
    """
    return _loader.load().tf_gc_decode_factors(
        total=total, basis=basis, factors=factors, like=like, rows=rows, rank=rank
    )
