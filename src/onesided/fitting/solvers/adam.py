"""Adam: gradient descent whose steps are scaled, coordinate by coordinate, by the recent size of the gradient.

    m ← β₁ m + (1 − β₁) g,   s ← β₂ s + (1 − β₂) g²,   X ← X − η (m / (1 − β₁ᵗ)) / (√(s / (1 − β₂ᵗ)) + ε)

with β₁ = 0.9, β₂ = 0.999 and ε = 1e-8 (Kingma and Ba, 2015).
"""

from __future__ import annotations

import numpy as np

from onesided.arrays import Array
from onesided.errors import counted
from onesided.fitting.solvers.gradient_descent import DIVERGED
from onesided.fitting.solvers.result import Progress, SolveResult, ValueAndGradient

FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-8


def adam(
    value_and_gradient: ValueAndGradient,
    start: Array,
    *,
    learning_rate: float,
    iterations: int,
    progress: Progress | None = None,
) -> SolveResult:
    """So many steps of Adam; the status is "completed", or "diverged".

    A step moves no coordinate by much more than η, so that a loss may rise at first, far above that of a small start,
    and fall again. Divergence is a loss that is not a number, or one that ends far above that of the start.

    >>> result = adam(lambda x: (float(x @ x), 2 * x), np.ones(2), learning_rate=0.1, iterations=100)
    >>> result.status, bool(result.history[-1] < 1e-3)
    ('completed', True)
    """
    X = np.array(start, dtype=np.float64)
    mean, square, step, root = (np.zeros_like(X) for _ in range(4))
    history: list[float] = []
    for iteration in range(iterations + 1):
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is divergence, and is said to be
            loss, gradient = value_and_gradient(X)
        history.append(loss)
        last = iteration == iterations
        if not (np.isfinite(loss) and np.isfinite(gradient).all()) or (last and loss > DIVERGED * history[0]):
            change = f"from {history[0]:.4g} to {loss:.4g} in {counted(iteration, 'iteration')}"
            detail = f"with learning_rate={learning_rate:g} the loss went {change}"
            return SolveResult(X, "diverged", tuple(history), len(history), detail)
        if last:
            break
        with np.errstate(over="ignore"):
            mean += (1 - FIRST) * np.subtract(gradient, mean, out=step)
            np.multiply(gradient, gradient, out=root)
            square += (1 - SECOND) * np.subtract(root, square, out=root)
            np.sqrt(square, out=root)
        root *= 1 / np.sqrt(1 - SECOND ** (iteration + 1))
        root += EPSILON
        np.divide(mean, root, out=step)
        step *= learning_rate / (1 - FIRST ** (iteration + 1))
        X -= step
        if progress is not None:
            progress(iteration + 1, loss)
    return SolveResult(X, "completed", tuple(history), len(history))
