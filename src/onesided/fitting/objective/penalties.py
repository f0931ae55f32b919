"""Penalties on the factor, with their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from onesided.arrays import Array, namespace


def incoherence(X: Any, alpha: float) -> tuple[float, Any]:
    """R(X) = Σ_j (‖x_j‖ − α)₊⁴ and its gradient, 4 (‖x_j‖ − α)₊³ x_j / ‖x_j‖ in x_j.

    >>> value, gradient = incoherence(np.array([[0.0, 5.0], [0.1, 0.0]]), 4.0)
    >>> value, gradient.tolist()
    (1.0, [[0.0, 4.0], [0.0, 0.0]])
    """
    norms = (X * X).sum(1) ** 0.5
    excess = (norms - alpha).clip(0.0)
    slope = 4 * excess**3 / namespace(X).where(norms > 0, norms, 1.0)
    return float((excess**4).sum()), slope[:, None] * X


def nuclear_norm(X: Array) -> tuple[float, Array]:
    """‖X‖_*, the sum of the singular values, and its subgradient U Vᵀ, from the eigenpairs of XᵀX.

    Directions in which X is zero but for rounding have no part in either.

    >>> value, gradient = nuclear_norm(np.array([[3.0, 0.0], [0.0, 0.0], [0.0, 0.5]]))
    >>> value, gradient.tolist()
    (3.5, [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    """
    squares, axes = np.linalg.eigh(X.T @ X)
    kept = squares > 1e-14 * squares.max(initial=0.0)
    values, axes = np.sqrt(squares[kept]), axes[:, kept]
    return float(values.sum()), np.asarray(X @ ((axes / values) @ axes.T))
