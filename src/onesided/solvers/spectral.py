"""A start for the row objective: the best low-rank fit if all pairs had their expected counts.

If N_ij were c_i c_j / Σc, with c_j = Σ_{i≠j} N_ij, the loss would be ‖C^½ (XXᵀ − T̂) C^½‖² / (2 Σc) and its minimum
the top eigenpairs of K = C^½ T̂ C^½, X = C^−½ U Λ^½. The off-diagonal part of K is C^−½ M̂ᵀWM̂ C^−½ Σc; on the
diagonal stands c_j T̂_jj when the diagonal is fitted, and nothing when it is free. A row effect is taken off first.
Columns seen rarely would get large rows by chance, so a tenth of the mean is added to every c_j. Last, the length of
X is set to the best one: L(tX) = a t⁴ − b t², with a and b known from one value and gradient. Of large panels, rows
with about four million entries are enough to start from.

Where the best length is zero, because the ridge outweighs what the directions explain together, the start is made
of the directions in which the loss falls from X = 0: eigenvectors of the sums of products above ρ, if there are any.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from onesided.objective.rows import RowObjective

Array = npt.NDArray[Any]

DAMPING = 0.1
DENSE = 200  # up to this many columns, form K and decompose it exactly
SEEDED = "rng" in inspect.signature(eigsh).parameters  # since scipy 1.17 it draws on its own where it has to begin anew
JITTER = 0.01  # of the root mean square: directions without a positive eigenvalue start here, not at zero


def spectral_start(objective: RowObjective, rank: int, rng: np.random.Generator) -> Array:
    """A d × rank factor near the minimum of ``objective``; columns never seen are zero."""
    if rank == 0 or not objective.pair_counts.any() or not objective.squares.any():
        return np.zeros((objective.n_columns, rank))
    values, vectors = top_eigenpairs(balanced_products(objective, objective.rough_products), rank, rng, tol=1e-2)
    X = _at_best_length(objective, vectors / np.sqrt(damped_counts(objective))[:, None], values, rng)
    return X if X.any() else _away_from_zero(objective, rank, rng)


def damped_counts(objective: RowObjective) -> Array:
    """c_j, with a tenth of the mean over columns seen beside another added."""
    counts = objective.pair_counts
    return np.asarray(counts + DAMPING * counts[counts > 0].mean())


def balanced_products(objective: RowObjective, products: Callable[[Array], Array]) -> LinearOperator:
    """K as an operator, from the objective's sums of products or its rough ones."""
    damped = damped_counts(objective)
    root, total = np.sqrt(damped), objective.pair_counts.sum()
    own = np.zeros_like(root)
    if objective.diagonal == "fit":
        own = damped * objective.own / np.where(objective.counts > 0, objective.counts, 1.0)

    def apply(V: Array) -> Array:
        V = V.reshape(len(root), -1)
        return np.asarray(products(V / root[:, None]) * (total / root)[:, None] + own[:, None] * V)

    return _operator(apply, len(root))


def _at_best_length(objective: RowObjective, axes: Array, values: Array, rng: np.random.Generator) -> Array:
    strength = np.sqrt(np.maximum(values, 0.0))
    X: Array = axes * strength
    # A direction at zero is a stationary point: leave it in every direction that has no strength of its own.
    X += np.where(strength > 0, 0.0, JITTER) * rng.standard_normal(X.shape)
    X[objective.pair_counts == 0] = 0.0
    loss, gradient = objective.value_and_gradient(X)
    quartic = (float(np.vdot(gradient, X)) - 2 * loss) / 2
    quadratic = quartic - loss
    if quartic <= 0:
        return X
    # A gain lost in rounding is none: then zero is the best length.
    return X * (np.sqrt(quadratic / (2 * quartic)) if quadratic > objective.resolution * quartic else 0.0)


def _away_from_zero(objective: RowObjective, rank: int, rng: np.random.Generator) -> Array:
    own = objective.own if objective.diagonal == "fit" else np.zeros(objective.n_columns)

    def apply(V: Array) -> Array:
        V = V.reshape(len(own), -1)
        return objective.rough_products(V) + own[:, None] * V

    values, vectors = top_eigenpairs(_operator(apply, len(own)), rank, rng, tol=1e-2)
    return _at_best_length(objective, vectors, values - objective.ridge, rng)


def _operator(apply: Callable[[Array], Array], d: int) -> LinearOperator:
    return LinearOperator((d, d), matvec=lambda v: apply(v).ravel(), matmat=apply, dtype=np.float64)


def top_eigenpairs(
    operator: LinearOperator, rank: int, rng: np.random.Generator, tol: float = 0.0
) -> tuple[Array, Array]:
    """The largest eigenvalues of a symmetric operator, descending by value, and their vectors.

    Where the eigensolver does not converge, or finds nothing to hold on to because the operator is zero but for
    rounding errors, the pairs it has found, followed by zeros.

    >>> from scipy.sparse.linalg import aslinearoperator
    >>> top_eigenpairs(aslinearoperator(np.diag([1.0, -5.0, 2.0])), 2, np.random.default_rng(0))[0]
    array([2., 1.])
    """
    d = operator.shape[0]
    if d <= max(DENSE, 2 * rank + 1):
        K = operator @ np.eye(d)
        values, vectors = np.linalg.eigh((K + K.T) / 2)
        return values[::-1][:rank].copy(), vectors[:, ::-1][:, :rank].copy()
    seed = {"rng": rng} if SEEDED else {}
    try:
        values, vectors = eigsh(operator, k=rank, which="LA", v0=rng.standard_normal(d), tol=tol, maxiter=100, **seed)
    except ArpackError as stopped:
        values = getattr(stopped, "eigenvalues", np.zeros(0))
        vectors = getattr(stopped, "eigenvectors", np.zeros((d, 0)))
    order = np.argsort(values)[::-1]
    missing = rank - len(order)
    return (
        np.concatenate([values[order], np.zeros(missing)]),
        np.concatenate([vectors[:, order], np.zeros((d, missing))], axis=1),
    )
