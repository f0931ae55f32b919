"""Gradient descent with a fixed step: Algorithm 1 of the paper, as printed."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse.linalg import aslinearoperator

from onesided.arrays import Array, namespace
from onesided.errors import counted
from onesided.fitting.solvers.result import Progress, SolveResult, ValueAndGradient
from onesided.fitting.solvers.spectral import top_eigenpairs
from onesided.pairs.moments import PairMoments, hajek

DIVERGED = 10.0  # times the loss of the start


def random_start(d: int, rank: int, rng: np.random.Generator) -> Array:
    """X₀ of Algorithm 1: independent N(0, 1/d)."""
    return rng.normal(scale=1 / np.sqrt(d), size=(d, rank))


def stable_step(moments: PairMoments, rng: np.random.Generator) -> float:
    """A step for the paper's loss that does not diverge: near the minimum, its curvature is at most 4 λ / |Ω|.

    λ is the largest eigenvalue of T, or of the random start, whose is one; a quarter is left for the way there.

    >>> from onesided.panels.panel import Panel
    >>> stable_step(PairMoments.from_panel(Panel.from_dense(np.ones((3, 2)))), np.random.default_rng(0))
    0.25
    """
    i, j = moments.pairs()
    largest, _ = top_eigenpairs(aslinearoperator(moments.to_matrix(hajek(moments))), 1, rng)
    return float((moments.n_pairs + np.count_nonzero(i != j)) / (8 * max(largest[0], 1.0)))


def gradient_descent(
    value_and_gradient: ValueAndGradient,
    start: Any,
    *,
    step_size: float,
    iterations: int,
    progress: Progress | None = None,
) -> SolveResult:
    """X ← X − η ∇ℓ(X), ``iterations`` times.

    A fixed step that is too long makes the loss grow without bound. That ends the descent with the status
    "diverged" and the best factor so far. The loss of the last factor is evaluated too.

    >>> result = gradient_descent(lambda x: (float(x @ x), 2 * x), np.ones(2), step_size=0.25, iterations=3)
    >>> result.factor, result.status
    (array([0.125, 0.125]), 'completed')
    >>> gradient_descent(lambda x: (float(x @ x), 2 * x), np.ones(2), step_size=3.0, iterations=9).status
    'diverged'
    """
    X = best = namespace(start).asarray(start, dtype=namespace(start).float64)
    history: list[float] = []
    for iteration in range(iterations + 1):
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is divergence, and is said to be
            loss, gradient = value_and_gradient(X)
        history.append(loss)
        if not np.isfinite(loss) or loss > DIVERGED * history[0]:
            change = f"from {history[0]:.4g} to {loss:.4g} in {counted(iteration, 'iteration')}"
            detail = f"with step_size={step_size:g} the loss rose {change}"
            return SolveResult(best, "diverged", tuple(history), len(history), detail)
        if iteration == iterations:
            break
        if loss <= min(history):
            best = X
        with np.errstate(over="ignore", invalid="ignore"):
            X = X - step_size * gradient
        if progress is not None:
            progress(iteration + 1, loss)
    return SolveResult(X, "completed", tuple(history), len(history))
