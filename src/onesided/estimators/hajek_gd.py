"""The paper's algorithms as printed, as an estimator: ``HajekGD``.

What ``fit`` refuses, beside what :mod:`onesided.estimators.completion` does:

=====================================================  ========================================================
found                                                  message
=====================================================  ========================================================
a step too long for the panel                          diverged after 3 passes: …; try step_size=40
pair moments that do not fit in memory                 see :mod:`onesided.pairs.moments`
=====================================================  ========================================================
"""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from onesided.arrays import Array, host
from onesided.engines.engine import engine_for
from onesided.engines.placement import explaining_gpu_memory, place_of, placed
from onesided.engines.threads import single_blas_thread
from onesided.errors import InputError
from onesided.estimators.base import OneSidedEstimator, Unknown, generator, warn_of_parts
from onesided.estimators.parameters import Interval, ranges
from onesided.fitting.objective.pairs import PairObjective
from onesided.fitting.setting import check_fittable
from onesided.fitting.solvers.gradient_descent import gradient_descent, random_start, stable_step
from onesided.fitting.solvers.result import Progress
from onesided.fitting.solvers.spectral import top_eigenpairs
from onesided.model.imputation import LeastSquares, check_positions
from onesided.model.row_space import RowSpace, noiseless
from onesided.model.second_moment import SecondMoment
from onesided.pairs.moments import PairMoments
from onesided.panels.panel_like import PanelLike


class HajekGD(OneSidedEstimator):
    """Algorithms 1 and 2 of "One-Sided Matrix Completion from Ultra-Sparse Samples", as printed.

    Builds the pair moments explicitly, divides on Ω, and runs gradient descent from a random start on the loss of
    :mod:`onesided.fitting.objective.pairs`. Memory grows with the number of observed pairs, which
    :func:`onesided.pairs.size.pair_size` tells; a panel whose pair moments do not fit in what is free is refused.

    Parameters
    ----------
    rank : int, default 10
    step_size : float, default 1e4
        η. The default is the paper's, for its synthetic panel; panels in other units need another.
    iterations : int, default 1000
        t.
    penalty : float, default 1e-4
        λ of the incoherence penalty.
    alpha : float, default 1e-3
        α: rows of the factor shorter than this are not penalised.
    p : float, optional
        The probability with which each entry was observed, if known; it sets the weight of the diagonal,
        q = 1 − (1 − p²)ⁿ. Otherwise q is the share of off-diagonal pairs that were observed.
    random_state : int, Generator, RandomState or None
    device : "cpu", "cuda", "cuda:1", … or "auto", default "cpu"
        Where pairs are summed and gone over, as for :class:`onesided.OneSidedCompletion`.

    Attributes
    ----------
    factor_ : array of d × rank
        X after the last iteration; ``second_moment_`` is XXᵀ, and ``second_moment_.algorithm1`` what Algorithm 1
        returns.
    components_, eigenvalues_ : arrays of rank × d and rank
        The top eigenpairs, by value, of Algorithm 1's output, which may be indefinite.
    mean_ : array of d
        Zeros: the algorithm does not centre.
    second_moment_ : SecondMoment
    solve_ : SolveResult
    column_ids_ : array of d

    Examples
    --------
    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.low_rank_gaussian(2000, 50, 2, rng=0), 5, rng=1)
    >>> HajekGD(rank=2, step_size=500.0, random_state=0).fit(panel).solve_.status
    'completed'
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **ranges("rank", "step_size", "iterations", "penalty", "alpha", "random_state"),
        "p": [Interval(Real, 0, 1, closed="right"), None],
        "device": [str],
    }

    def __init__(
        self,
        rank: int = 10,
        *,
        step_size: float = 1e4,
        iterations: int = 1000,
        penalty: float = 1e-4,
        alpha: float = 1e-3,
        p: float | None = None,
        random_state: Any = None,
        device: str = "cpu",
    ) -> None:
        self.rank = rank
        self.step_size = step_size
        self.iterations = iterations
        self.penalty = penalty
        self.alpha = alpha
        self.p = p
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any = None, *, progress: Progress | None = None) -> Self:
        """Fit to a panel, a scipy sparse matrix (stored zeros are observations) or a dense array with NaN."""
        self._validate_params()
        panel = self._read_for_fit(X)
        check_fittable(panel, self.rank)
        rng = generator(self.random_state)
        start = random_start(panel.n_columns, self.rank, rng)
        start[panel.column_counts == 0] = 0.0  # no pair would ever move them from where they began
        q = None if self.p is None else -np.expm1(panel.n_rows * np.log1p(-min(self.p**2, 1 - 1e-16)))
        with single_blas_thread(), explaining_gpu_memory():
            there = placed(panel, self.device, rank=self.rank)
            moments = PairMoments.from_panel(there)
            objective = PairObjective(
                moments, penalty=self.penalty, alpha=self.alpha, diagonal_weight=q, place=place_of(there)
            )
            solve = gradient_descent(
                objective.value_and_gradient,
                engine_for(there).array(start),
                step_size=self.step_size,
                iterations=self.iterations,
                progress=progress,
            )
            self.solve_ = replace(solve, factor=host(solve.factor))
            if self.solve_.status == "diverged":
                raise InputError(f"{self.solve_.message}; try step_size={stable_step(moments, rng):.1g}")
            self._hold(noiseless(self.solve_.factor).measured_on(there), panel.at_home(), moments)
            warn_of_parts(self.measured_)
            values, vectors = top_eigenpairs(self.second_moment_.algorithm1, self.rank, rng)
        signs = np.sign(vectors[np.argmax(np.abs(vectors), axis=0), np.arange(self.rank)])
        self.eigenvalues_, self.components_ = values, (vectors * np.where(signs < 0, -1.0, 1.0)).T
        return self

    def transform(self, X: Any, *, unknown: Unknown = "refuse") -> Array:
        """Coordinates of rows on ``components_``, by least squares on their observed entries."""
        return self._predictor().coordinates(self._read_for_use(X, unknown))

    def impute(self, X: Any, *, unknown: Unknown = "refuse") -> Array:
        """Algorithm 2: rows filled in, as a dense array; observed entries stay as they are."""
        return self._predictor().impute(self._read_for_use(X, unknown))

    def impute_at(self, X: Any, rows: Any, columns: Any, *, unknown: Unknown = "refuse") -> Array:
        """Predictions at positions of X: row positions and column positions of the model, of one length."""
        panel = self._read_for_use(X, unknown)
        return self._predictor().impute_at(panel, *check_positions(panel, rows, columns))

    def _hold(self, space: RowSpace, panel: PanelLike | None, moments: PairMoments | None = None) -> None:
        self.row_space_ = space
        self.second_moment_ = SecondMoment(
            space.factor,
            self.measured_,
            column_ids=self.column_ids_,
            panel=panel,
            moments=moments,
            common=space.rank,  # XXᵀ everywhere, as the paper has it
        )

    def _predictor(self) -> LeastSquares:
        check_is_fitted(self)
        return LeastSquares(np.ascontiguousarray(self.components_.T))

    _saved_arrays: ClassVar[tuple[str, ...]] = ("components", "eigenvalues")
