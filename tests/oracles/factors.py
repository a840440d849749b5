"""Low rank in NumPy: what custom_ops/lib/low_rank does, in the same order of additions."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LANES = 16
MAX_MAGNITUDE = np.float32(2.0**120)


def project(gradient: Array, residual: Array, q: Array) -> Array:
    """The columns of P, [rank, rows], of a matrix [rows, columns]."""
    with np.errstate(invalid="ignore", over="ignore"):
        p = _dots(gradient.astype(np.float32) + residual, q)
    p[:, ~np.isfinite(p).all(0)] = 0
    return p


def encode(gradient: Array, residual: Array, p: Array) -> tuple[Array, Array]:
    """The columns of Q, [rank, columns], and the new residual."""
    with np.errstate(invalid="ignore", over="ignore"):
        matrix = gradient.astype(np.float32) + residual
        q = np.zeros((len(p), matrix.shape[1]), np.float32)
        for i, row in enumerate(matrix):  # M' P: the rows one after the other
            q += p[:, i, None] * row
        finite = np.isfinite(q).all(0)
        rest = matrix - product(p, q)
        rest = np.where(np.abs(rest) < MAX_MAGNITUDE, rest, np.float32(0))
    q[:, ~finite] = np.nan
    return q, np.where(finite, rest, residual)


def product(p: Array, q: Array) -> Array:
    """The matrix of two factors, whose terms are added in the order of the columns."""
    total = p[0][:, None] * q[0]
    for k in range(1, len(p)):
        total = total + p[k][:, None] * q[k]
    return total


def _dots(matrix: Array, q: Array) -> Array:
    """M Q: sixteen lanes, each of every sixteenth element, which are then added as a tree."""
    missing = -matrix.shape[1] % LANES
    matrix = np.pad(matrix, ((0, 0), (0, missing)))
    q = np.pad(q, ((0, 0), (0, missing)))
    lanes = np.zeros((len(q), len(matrix), LANES), np.float32)
    for start in range(0, matrix.shape[1], LANES):
        lanes += matrix[:, start : start + LANES] * q[:, None, start : start + LANES]
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def orthonormal(columns: Array) -> Array:
    """Columns [rank, n] that are orthonormal and span the same."""
    rank, n = columns.shape
    x = np.arange(1, rank * n + 1, dtype=np.uint32) * np.uint32(2654435769)
    x ^= x >> np.uint32(16)
    x *= np.uint32(2246822519)
    x ^= x >> np.uint32(13)
    noise = (x.astype(np.float64).reshape(rank, n) - 2.0**31) / 2.0**31
    done: list[Array] = []
    for k in range(rank):
        column = _independent(columns[k].astype(np.float64), done)
        if column is None:
            column = _independent(noise[k], done)
        done.append(np.zeros(n) if column is None else column)
    return np.array(done, np.float32)


def _independent(column: Array, others: list[Array]) -> Array | None:
    size = np.sqrt(_dot(column, column))
    for _ in range(2):
        for other in others:
            column = column - _dot(other, column) * other
    norm = np.sqrt(_dot(column, column))
    return column / norm if norm > 1e-6 * size else None


def _dot(a: Array, b: Array) -> Any:
    sums = [np.cumsum(a[part::4] * b[part::4])[-1:].sum() for part in range(4)]
    return (sums[0] + sums[2]) + (sums[1] + sums[3])
