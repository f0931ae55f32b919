"""What all baselines share: the frame of a fit, T from a factor, and rows filled in from their coordinates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from onesided.arrays import Array
from onesided.engines.threads import single_blas_thread
from onesided.errors import InputError, warn
from onesided.estimators.base import OneSidedEstimator, Unknown, warn_of_parts
from onesided.fitting.setting import check_fittable
from onesided.fitting.solvers.adam import adam
from onesided.fitting.solvers.result import Progress, SolveResult, ValueAndGradient
from onesided.model.imputation import LeastSquares, check_positions, observed_positions
from onesided.model.row_space import RowSpace
from onesided.model.second_moment import Output, SecondMoment
from onesided.pairs.measured import Measured
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike

Fitted = tuple[RowSpace, SolveResult]


class Baseline(OneSidedEstimator):
    """T = μμᵀ + XXᵀ with X in its principal axes; row u is predicted by μ + L q_u.

    Subclasses fit a row space and say what L and q_u are. Its noise is zero where the method has no model of it.
    """

    rank: int
    _output: ClassVar[Output] = "low_rank"
    _mean_in_moment: ClassVar[bool] = True

    def fit(self, X: Any, y: Any = None, *, progress: Progress | None = None) -> Self:
        """Fit to a panel, a scipy sparse matrix (stored zeros are observations) or a dense array with NaN."""
        self._validate_params()
        panel = self._read_for_fit(X).to_panel()
        check_fittable(panel, self.rank)
        with single_blas_thread():
            measured = Measured.from_panel(panel)
            space, solve = self._fit(panel, measured, progress)
            self.solve_ = replace(solve, factor=space.factor)
            self._hold(space.measured_on(panel, measured), panel)
        if not solve.succeeded:
            warn(solve.message, ConvergenceWarning)
        if self.rank:
            warn_of_parts(measured)
        return self

    def _fit(self, panel: Panel, measured: Measured, progress: Progress | None) -> Fitted:
        """The row space, and how its solver ended."""
        raise NotImplementedError

    def _loadings(self) -> Array:
        """L, d × k."""
        return np.ascontiguousarray(self.components_.T)

    def _coordinates(self, panel: Panel) -> Array:
        """q of every row: by least squares on L, of least norm where a row has fewer entries than L columns."""
        loadings = self._loadings()
        if loadings.shape[1] == 0:  # a penalty left nothing
            return np.zeros((panel.n_rows, 0))
        return LeastSquares(loadings).coordinates(panel)

    def transform(self, X: Any, *, unknown: Unknown = "refuse") -> Array:
        """Coordinates of rows on ``components_``: ``transform(X) @ components_ + mean_`` predicts them."""
        panel = self._read_for_use(X, unknown).to_panel()
        return np.asarray(self._coordinates(panel) @ (self._loadings().T @ self.components_.T))

    def impute(self, X: Any, *, unknown: Unknown = "refuse") -> Array:
        """Rows filled in, as a dense array; observed entries stay as they are."""
        panel = self._read_for_use(X, unknown).to_panel()
        filled: Array = self.mean_ + self._coordinates(panel) @ self._loadings().T
        filled[observed_positions(panel)] = panel.values
        return filled

    def impute_at(self, X: Any, rows: Any, columns: Any, *, unknown: Unknown = "refuse") -> Array:
        """Predictions at positions of X: row positions and column positions of the model, of one length.

        An observed entry is predicted like any other, from all of its row.
        """
        panel = self._read_for_use(X, unknown).to_panel()
        rows, columns = check_positions(panel, rows, columns)
        asked, back = np.unique(rows, return_inverse=True)
        q = self._coordinates(panel.take_rows(asked)) if len(asked) else np.zeros((0, len(self._loadings().T)))
        return np.asarray(self.mean_[columns] + np.einsum("ka,ka->k", q[back], self._loadings()[columns]))

    def _hold(self, space: RowSpace, panel: PanelLike | None) -> None:
        self.row_space_ = space
        lengths = np.linalg.norm(space.factor, axis=0)
        self.eigenvalues_ = lengths**2
        self.components_ = (space.factor / np.where(lengths > 0, lengths, 1.0)).T
        self.second_moment_ = SecondMoment(
            space.factor,
            self.measured_,
            mean=space.mean if self._mean_in_moment and np.any(space.mean) else None,
            column_ids=self.column_ids_,
            panel=panel,
            kappa=np.inf,
            output=self._output,
            common=space.rank,  # between parts, too, T is what the method says
        )


def descended(
    value_and_gradient: ValueAndGradient, start: Array, rate: float, iterations: int, progress: Progress | None
) -> SolveResult:
    """What Adam finds; refused where it diverged."""
    solve = adam(value_and_gradient, start, learning_rate=rate, iterations=iterations, progress=progress)
    if solve.status == "diverged":
        raise InputError(f"diverged: {solve.detail}; try learning_rate={rate / 10:.1g}, or values in a larger unit")
    return solve
