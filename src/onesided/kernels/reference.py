"""The kernels in plain numpy, written to be read; the oracle of the tests.

Notation: row u has weight w and observes values v in a set of columns; B is the factor restricted to them
(one line per entry), A = BᵀB and b = Bᵀv.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SINGULAR = 1e-12  # singular values below this share of the largest count as zero


def _rows(indptr: Array) -> Iterator[tuple[int, slice]]:
    for u in range(len(indptr) - 1):
        yield u, slice(indptr[u], indptr[u + 1])


def counting_sort(keys: Array, n_keys: int) -> tuple[Array, Array]:
    """Where each key's entries begin in sorted order, and the stable order itself."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=n_keys))])
    return starts, np.argsort(keys, kind="stable")


def pair_moments(
    first: int,
    last: int,
    column_indptr: Array,
    column_rows: Array,
    column_values: Array,
    indptr: Array,
    columns: Array,
    values: Array,
    weights: Array,
) -> tuple[Array, Array, Array, Array, Array, Array, Array]:
    """Moments of the products p = v_i v_j over rows of positive weight, for every pair i ≤ j seen together.

    For the columns i from ``first`` to ``last`` of a panel given by columns and by rows. Returns compressed
    upper-triangular rows (pointers, columns j) and, aligned with them, the number of rows, Σw, Σw², Σwp and
    Σwp². A pair belongs to Ω when a row has it, whatever its products sum to.
    """
    d = len(column_indptr) - 1
    rows, total, squared = (np.zeros((d, d)) for _ in range(3))
    sums, squares = np.zeros((d, d)), np.zeros((d, d))
    for u, row in _rows(indptr):
        if weights[u] > 0:
            pairs = np.ix_(columns[row], columns[row])
            v = values[row].astype(np.float64)
            p, w = np.outer(v, v), weights[u]
            rows[pairs] += 1
            total[pairs] += w
            squared[pairs] += w**2
            sums[pairs] += w * p
            squares[pairs] += w * p**2
    i, j = np.nonzero(np.triu(rows)[first:last])
    pointers, i = np.searchsorted(i, np.arange(last - first + 1)), i + first
    return (
        pointers,
        j.astype(np.int32),
        rows[i, j].astype(np.int64),
        total[i, j],
        squared[i, j],
        sums[i, j],
        squares[i, j],
    )


def pair_pass(
    first: int, indptr: Array, columns: Array, weights: Array, target: Array, X: Array
) -> tuple[float, Array]:
    """½ Σ_ij W_ij (x_iᵀx_j − t_ij)² over the full matrix, and its gradient 2 (W ∘ (XXᵀ − t)) X.

    The block's k-th row is column ``first + k``; pairs are given once, with i ≤ j.
    """
    loss, gradient = 0.0, np.zeros(X.shape)
    for k, row in _rows(indptr):
        i = first + k
        for j, weight, t in zip(columns[row], weights[row], target[row], strict=True):
            error = weight * (X[i] @ X[j] - t)
            twice = 1.0 if i == j else 2.0
            loss += 0.5 * twice * error * (X[i] @ X[j] - t)
            gradient[i] += 2 * error * X[j]
            if i != j:
                gradient[j] += 2 * error * X[i]
    return loss, gradient


def row_pass(indptr: Array, columns: Array, values: Array, weights: Array, X: Array) -> tuple[float, Array]:
    """½ Σ_u w (‖A‖² − 2‖b‖²) and its gradient, for x_j: 2 Σ_u w (A x_j − v_j b).

    This is ½ Σ_ij N_ij (x_iᵀx_j − T̂_ij)² over all pairs of columns, diagonal included, up to a constant.
    """
    loss, gradient = 0.0, np.zeros(X.shape)
    for u, row in _rows(indptr):
        B, v = X[columns[row]].astype(np.float64), values[row].astype(np.float64)
        A, b = B.T @ B, B.T @ v
        loss += 0.5 * weights[u] * (np.sum(A**2) - 2 * b @ b)
        gradient[columns[row]] += 2 * weights[u] * (B @ A - np.outer(v, b))
    return loss, gradient


def curvature(indptr: Array, columns: Array, weights: Array, X: Array) -> Array:
    """Σ_{u∋j} w A_u for every column j: the blocks from which the curvature is made."""
    blocks = np.zeros((*X.shape, X.shape[1]))
    for u, row in _rows(indptr):
        B = X[columns[row]].astype(np.float64)
        blocks[columns[row]] += weights[u] * (B.T @ B)
    return blocks


def gram_product(indptr: Array, columns: Array, values: Array, weights: Array, V: Array) -> Array:
    """M̂ᵀ diag(w) M̂ V."""
    product = np.zeros(V.shape)
    for u, row in _rows(indptr):
        v = values[row].astype(np.float64)
        product[columns[row]] += weights[u] * np.outer(v, v @ V[columns[row]])
    return product


def row_solve(indptr: Array, columns: Array, values: Array, X: Array, precision: Array) -> tuple[Array, Array]:
    """Posterior mean and covariance of each row's coordinates under v = x_jᵀq + ε, q ~ N(0, I), var ε = 1/γ_j.

    S = (I + Σ γ x xᵀ)⁻¹ and q = S Σ γ v x: the best linear predictor of a row is X q.
    """
    n, r = len(indptr) - 1, X.shape[1]
    mean, covariance = np.zeros((n, r)), np.zeros((n, r, r))
    for u, row in _rows(indptr):
        B, g = X[columns[row]], precision[columns[row]]
        covariance[u] = np.linalg.inv(np.eye(r) + (B.T * g) @ B)
        mean[u] = covariance[u] @ (B.T @ (g * values[row]))
    return mean, covariance


def least_squares(indptr: Array, columns: Array, values: Array, X: Array) -> Array:
    """argmin ‖B q − v‖ for each row, of least norm where there are several."""
    coordinates = np.zeros((len(indptr) - 1, X.shape[1]))
    for u, row in _rows(indptr):
        coordinates[u] = np.linalg.pinv(X[columns[row]], rcond=SINGULAR) @ values[row]
    return coordinates
