"""A start for the row objective: the best low-rank fit if all pairs had their expected counts.

If N_ij were c_i c_j / Σc, with c_j = Σ_{i≠j} N_ij, the loss would be ‖C^½ (XXᵀ − T̂) C^½‖² / (2 Σc) and its minimum
the top eigenpairs of K = C^½ T̂ C^½, X = C^−½ U Λ^½. The off-diagonal part of K is C^−½ M̂ᵀWM̂ C^−½ Σc; on the
diagonal stands c_j T̂_jj when the diagonal is fitted, and nothing when it is free. A row effect is taken off first.
Columns seen rarely would get large rows by chance, so a tenth of the mean is added to every c_j. Last, the length of
X is set to the best one: L(tX) = a t⁴ − b t², with a and b known from one value and gradient. Of large panels, rows
with about four million entries are enough to start from; on a device all rows are gone over where columns are many.

Where the best length is zero, because the ridge outweighs what the directions explain together, the start is made
of the directions in which the loss falls from X = 0: eigenvectors of the sums of products above ρ, if there are any.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from onesided.arrays import Array, host, inner, like, namespace
from onesided.fitting.objective.rows import RowObjective

Products = Callable[[Any], Any]

DAMPING = 0.1
LONG = 1 << 15  # columns beyond which vectors stay on the device, if there is one, as a block
ROUGH = 1e-4  # relative residual of eigenvectors: with less, rounding errors would choose among starts
SPARE, ROUNDS = 8, 6  # vectors beyond those wanted, and products, of a block
DENSE = 200  # up to this many columns, form K and decompose it exactly
SEEDED = "rng" in inspect.signature(eigsh).parameters  # since scipy 1.17 it draws on its own where it has to begin anew
JITTER = 0.01  # of the root mean square: directions without a positive eigenvalue start here, not at zero


def spectral_start(objective: RowObjective, rank: int, rng: np.random.Generator) -> Any:
    """A d × rank factor near the minimum of ``objective``; columns never seen are zero."""
    if rank == 0 or not objective.pair_counts.any() or not objective.squares.any():
        return objective.engine.array(np.zeros((objective.n_columns, rank)))
    values, vectors = _top(objective, _balanced(objective, _products(objective)), rank, rng)
    X = _at_best_length(objective, vectors / (damped_counts(objective) ** 0.5)[:, None], values, rng)
    return X if X.any() else _away_from_zero(objective, rank, rng)


def damped_counts(objective: RowObjective) -> Any:
    """c_j, with a tenth of the mean over columns seen beside another added."""
    counts = objective.pair_counts
    return counts + DAMPING * counts[counts > 0].mean()


def balanced_products(objective: RowObjective, products: Products) -> LinearOperator:
    """K as an operator, from the objective's sums of products or its rough ones."""
    return _operator(objective, _balanced(objective, products))


def _balanced(objective: RowObjective, products: Products) -> Products:
    """What multiplies K with the columns of a matrix."""
    damped = damped_counts(objective)
    root, total = damped**0.5, objective.pair_counts.sum()
    own = namespace(root).zeros_like(root)
    if objective.diagonal == "fit":
        own = damped * objective.own / namespace(root).where(objective.counts > 0, objective.counts, 1.0)
    return lambda V: products(V / root[:, None]) * (total / root)[:, None] + own[:, None] * V


def _at_best_length(objective: RowObjective, axes: Any, values: Array, rng: np.random.Generator) -> Any:
    strength = np.sqrt(np.maximum(values, 0.0))
    X = axes * like(axes, strength)
    # A direction at zero is a stationary point: leave it in every direction that has no strength of its own.
    X += like(axes, np.where(strength > 0, 0.0, JITTER)) * objective.engine.normal(tuple(X.shape), rng)
    X[objective.pair_counts == 0] = 0.0
    loss, gradient = objective.value_and_gradient(X)
    quartic = (float(inner(gradient, X)) - 2 * loss) / 2
    quadratic = quartic - loss
    if quartic <= 0:
        return X
    # A gain lost in rounding is none: then zero is the best length.
    return X * (np.sqrt(quadratic / (2 * quartic)) if quadratic > objective.resolution * quartic else 0.0)


def _away_from_zero(objective: RowObjective, rank: int, rng: np.random.Generator) -> Any:
    own = objective.own if objective.diagonal == "fit" else namespace(objective.counts).zeros_like(objective.counts)
    products = _products(objective)
    values, vectors = _top(objective, lambda V: products(V) + own[:, None] * V, rank, rng)
    return _at_best_length(objective, vectors, values - objective.ridge, rng)


def _long(objective: RowObjective) -> bool:
    return objective.n_columns > LONG and objective.engine.xp is not np


def _products(objective: RowObjective) -> Products:
    """Of some of the rows; of all, where a device goes over them."""
    return objective.products if _long(objective) else objective.rough_products


def _top(objective: RowObjective, apply: Products, rank: int, rng: np.random.Generator) -> tuple[Array, Any]:
    """The top eigenpairs, roughly: values on the host, vectors where passes run."""
    if _long(objective):
        return _by_blocks(objective, apply, rank, rng)
    values, vectors = top_eigenpairs(_operator(objective, apply), rank, rng, tol=ROUGH)
    return values, objective.engine.array(vectors)


def _by_blocks(objective: RowObjective, apply: Products, rank: int, rng: np.random.Generator) -> tuple[Array, Any]:
    """Subspace iteration: where the host would take longer over its vectors than the device over all rows."""
    block = objective.engine.normal((objective.n_columns, rank + SPARE), rng)
    for _ in range(ROUNDS):
        block = apply(_orthonormal(block))
    basis = _orthonormal(block)
    values, turn = np.linalg.eigh(host(basis.T @ apply(basis)))
    return values[::-1][:rank].copy(), basis @ like(basis, turn[:, ::-1][:, :rank].copy())


def _orthonormal(block: Any) -> Any:
    """By the eigenpairs of its inner products, which are few; twice, for what rounding has left."""
    for _ in range(2):
        scale = (block * block).sum(0) ** 0.5
        block = block / namespace(block).where(scale > 0, scale, 1.0)
        gram = host(block.T @ block)
        values, axes = np.linalg.eigh(gram)
        block = block @ like(block, axes / np.sqrt(np.maximum(values, 1e-12 * values[-1])))
    return block


def _operator(objective: RowObjective, apply: Products) -> LinearOperator:
    """On vectors of the host."""
    d, engine = objective.n_columns, objective.engine

    def on_host(V: Array) -> Array:
        return host(apply(engine.array(V.reshape(d, -1))))

    return LinearOperator((d, d), matvec=lambda v: on_host(v).ravel(), matmat=on_host, dtype=np.float64)


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
