"""What a fit finds: means, a factor and the noise around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from onesided.fitting.solvers.result import SolveResult

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Refinement:
    """How the variational passes ended: ``change`` is what the last one moved, as a share of what it could move.

    >>> from onesided import synthetic
    >>> from onesided.fitting.moment_solution import moment_solution
    >>> from onesided.fitting.refinement import refine
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(2000, 30, 2, rng=0), 6, rng=1)
    >>> found = refine(panel, moment_solution(panel, rank=2, center="none"), center="none").refinement
    >>> found.passes < 40, found.change < 1e-3  # it settled before the limit of passes
    (True, True)
    """

    passes: int
    change: float


@dataclass(frozen=True, eq=False)
class RowSpace:
    """What was recovered: ``T ≈ μμᵀ + τ²11ᵀ + XXᵀ``, the noise around it, and how the solver ended.

    ``row_variance`` is τ², zero where rows have no effect of their own. ``spread`` holds the posterior covariance
    of (μ_j, y_j), where y_j = (τ, x_j) or x_j, as lower halves; None where columns are taken as known, as without a
    ``refinement``.

    >>> from onesided import synthetic
    >>> truth = synthetic.linear_mixture(2000, 30, 2, rng=0)
    >>> found = moment_solution(synthetic.sample_fixed(truth, 6, rng=1), rank=2)
    >>> error = np.outer(found.mean, found.mean) + found.factor @ found.factor.T - truth.second_moment()
    >>> bool(np.linalg.norm(error) < 0.15 * np.linalg.norm(truth.second_moment()))
    True
    """

    mean: Array
    factor: Array
    noise_variance: Array
    solve: SolveResult
    row_variance: float = 0.0
    spread: Array | None = None
    refinement: Refinement | None = None

    @property
    def loadings(self) -> Array:
        """What a row's coordinates are multiplied with: τ for its effect, if it has one, then X."""
        if self.row_variance == 0:
            return self.factor
        return np.column_stack([np.full(len(self.factor), np.sqrt(self.row_variance)), self.factor])
