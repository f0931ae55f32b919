"""Nuclear-norm regularisation on the observed pairs, as the paper's appendix has it: a factored descent.

    min over X (d × r) of ‖P_Ω(XXᵀ − T̂)‖² + λ‖X‖_* + 2|Ω| ρ/d · R(X)

by Adam, R the incoherence penalty, which the paper adds to the original method, in the units it has in ``HajekGD``. All
pairs of Ω weigh alike, the diagonal too, and rows are imputed by Algorithm 2: least squares on the top eigenpairs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.baselines.baseline import Baseline, Fitted, descended
from onesided.estimators.base import generator
from onesided.estimators.parameters import ranges
from onesided.fitting.objective.pairs import PairObjective
from onesided.fitting.objective.penalties import nuclear_norm
from onesided.fitting.solvers.gradient_descent import random_start
from onesided.fitting.solvers.result import Progress
from onesided.model.axes import principal_axes
from onesided.model.row_space import noiseless
from onesided.pairs.measured import Measured
from onesided.pairs.moments import PairMoments
from onesided.panels.panel import Panel


class FactoredNuclearNorm(Baseline):
    """A factor of T on Ω with a penalty on its nuclear norm, by Adam. The defaults are the paper's.

    Builds the pair moments explicitly, as :class:`onesided.HajekGD` does, and starts where that does.

    Parameters
    ----------
    rank : int, default 10
    penalty : float, default 0.01
        λ of the nuclear norm.
    learning_rate : float, default 0.1
    iterations : int, default 1000
    incoherence : float, default 1e-4
        ρ of the incoherence penalty; 0 for none.
    alpha : float, default 1e-3
        α: rows of the factor shorter than this have no incoherence penalty.
    random_state : int, Generator, RandomState or None

    Attributes
    ----------
    factor_ : array of d × rank
        X in its principal axes.
    components_, eigenvalues_, second_moment_
        Of XXᵀ.
    mean_ : array of d
        Zeros.
    solve_ : SolveResult
    column_ids_ : array of d

    Examples
    --------
    >>> from onesided import synthetic
    >>> truth = synthetic.linear_mixture(4000, 30, 2, rng=0)
    >>> panel = synthetic.sample_fixed(truth, 10, rng=1)
    >>> T = FactoredNuclearNorm(rank=2, random_state=0).fit(panel).second_moment_.to_dense()
    >>> bool(np.linalg.norm(T - truth.second_moment()) < 0.1 * np.linalg.norm(T))
    True
    """

    _parameter_constraints = ranges(
        "rank", "penalty", "learning_rate", "iterations", "incoherence", "alpha", "random_state"
    )

    def __init__(
        self,
        rank: int = 10,
        *,
        penalty: float = 0.01,
        learning_rate: float = 0.1,
        iterations: int = 1000,
        incoherence: float = 1e-4,
        alpha: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.rank = rank
        self.penalty = penalty
        self.learning_rate = learning_rate
        self.iterations = iterations
        self.incoherence = incoherence
        self.alpha = alpha
        self.random_state = random_state

    def _fit(self, panel: Panel, measured: Measured, progress: Progress | None) -> Fitted:
        start = random_start(panel.n_columns, self.rank, generator(self.random_state))
        start[measured.counts == 0] = 0.0  # no pair would ever move them from where they began
        moments = PairMoments.from_panel(panel)
        objective = PairObjective(moments, penalty=self.incoherence, alpha=self.alpha, diagonal_weight=1.0)
        value_and_gradient = partial(penalised, objective, self.penalty)
        solve = descended(value_and_gradient, start, self.learning_rate, self.iterations, progress)
        return noiseless(principal_axes(solve.factor)), solve


def penalised(objective: PairObjective, penalty: float, X: Array) -> tuple[float, Array]:
    """The loss over Ω, as a sum and not as a mean, with λ‖X‖_*; and its gradient."""
    value, gradient = objective.value_and_gradient(X)
    norm, slope = nuclear_norm(X) if np.isfinite(X).all() and np.isfinite(value) else (np.inf, X)
    size = 2 * objective.size
    return size * value + penalty * norm, size * gradient + penalty * slope
