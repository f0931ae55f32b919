"""Nuclear-norm regularisation on the observed pairs as the convex program that it is.

    min over symmetric Z of ½‖P_Ω(Z − T̂)‖² + λ‖Z‖_*

(:mod:`onesided.baselines.proximal`). All pairs of Ω weigh alike, the diagonal too, and rows are imputed by Algorithm 2:
least squares on the top eigenpairs.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.sparse.linalg import LinearOperator
from sklearn.exceptions import ConvergenceWarning

from onesided.baselines.baseline import Baseline, Fitted
from onesided.baselines.penalty_path import AUTO, PenaltyChosen, Tell, best_penalty, counting, held_out
from onesided.baselines.proximal import Limits, PairTarget, Solution, solve
from onesided.errors import warn
from onesided.estimators.base import generator
from onesided.estimators.parameters import ranges
from onesided.fitting.fit import Auto
from onesided.fitting.solvers.result import Progress, SolveResult
from onesided.fitting.solvers.spectral import top_eigenpairs
from onesided.model.axes import principal_axes
from onesided.model.row_space import RowSpace, noiseless
from onesided.pairs.measured import Measured
from onesided.pairs.moments import PairMoments
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike

COARSE = 1e-3  # the least tolerance while a penalty is chosen


class ConvexNuclearNorm(PenaltyChosen, Baseline):
    """T on Ω with a penalty on its nuclear norm: the convex program, solved by accelerated proximal gradient steps.

    Z may have eigenvalues below zero, T has none: ``second_moment_`` is the part of Z with positive eigenvalues, which
    is nearer than Z to every second moment.

    Parameters
    ----------
    rank : int, default 10
        Eigenpairs, the top ones by value, on which rows are imputed. T has all that Z has.
    penalty : float or "auto", default "auto"
        λ. "auto" goes down from the largest eigenvalue of T̂ on Ω and takes the penalty that predicts a tenth of the
        pairs off the diagonal, held out at random, best.
    tol : float, default 1e-4
        Steps end where one changes Z by less than this share, in Frobenius norm.
    max_iterations : int, default 500
    max_rank : int, default 200
        Eigenpairs of Z at most, those of largest magnitude. Where that is too few, the fit warns.
    random_state : int, Generator, RandomState or None
        For what is held out, and for the eigensolver.

    Attributes
    ----------
    penalty_ : float
        λ, chosen or given.
    spectrum_ : array
        The eigenvalues of Z, by magnitude, those below zero included.
    factor_ : array of d × k
        X with XXᵀ the positive part of Z.
    second_moment_ : SecondMoment
        XXᵀ.
    components_, eigenvalues_ : arrays of rank × d and rank
        The top eigenpairs, fewer than ``rank`` where Z has fewer.
    mean_ : array of d
        Zeros.
    solve_ : SolveResult
    column_ids_ : array of d

    Examples
    --------
    >>> from onesided import synthetic
    >>> truth = synthetic.linear_mixture(4000, 30, 2, rng=0)
    >>> panel = synthetic.sample_fixed(truth, 10, rng=1)
    >>> T = ConvexNuclearNorm(rank=2, random_state=0).fit(panel).second_moment_.to_dense()
    >>> bool(np.linalg.norm(T - truth.second_moment()) < 0.1 * np.linalg.norm(T))
    True
    """

    _parameter_constraints = ranges("rank", "tol", "max_iterations", "max_rank", "random_state") | AUTO

    def __init__(
        self,
        rank: int = 10,
        *,
        penalty: float | Auto = "auto",
        tol: float = 1e-4,
        max_iterations: int = 500,
        max_rank: int = 200,
        random_state: Any = None,
    ) -> None:
        self.rank = rank
        self.penalty = penalty
        self.tol = tol
        self.max_iterations = max_iterations
        self.max_rank = max_rank
        self.random_state = random_state

    def _fit(self, panel: Panel, measured: Measured, progress: Progress | None) -> Fitted:
        rng, tell = generator(self.random_state), counting(progress)
        target = PairTarget.of(PairMoments.from_panel(panel))
        limits = Limits(self.tol, self.max_iterations, self.max_rank)
        if self.penalty == "auto":
            self.penalty_, start = self._choose(target, limits, rng, tell)
        else:
            self.penalty_, start = float(self.penalty), Solution.nothing(panel.n_columns)
        found = solve(target, self.penalty_, start, limits, rng, progress=tell)
        self.spectrum_ = found.Z.values
        up = np.argsort(-found.Z.values, kind="stable")[: int(np.sum(found.Z.values > 0))]
        factor = principal_axes(found.Z.vectors[:, up] * np.sqrt(found.Z.values[up]))
        detail, steps = "", len(found.history) - 1
        if found.change > self.tol:
            detail = f"the last changed Z by {found.change:.1e}; raise max_iterations or tol"
        elif found.Z.rank == self.max_rank < panel.n_columns:
            detail = f"Z was cut off at max_rank={self.max_rank} eigenpairs; raise max_rank or the penalty"
        ended = SolveResult(factor, "limit" if detail else "converged", found.history, steps, detail)
        return noiseless(factor), ended

    def _choose(
        self, target: PairTarget, limits: Limits, rng: np.random.Generator, tell: Tell
    ) -> tuple[float, Solution]:
        """The penalty that predicts held-out pairs best, and the solution there to start from."""
        off = np.flatnonzero(target.off_diagonal)
        hidden = np.zeros(len(target.columns), dtype=bool)
        hidden[off] = held_out(len(off), rng)
        shown, other = target.split(hidden)
        last, solutions = Solution.nothing(target.n_columns), dict[float, Solution]()
        coarse, cut_off = limits._replace(tol=max(self.tol, COARSE)), False

        def error(penalty: float) -> float | None:
            nonlocal last, cut_off
            last = solve(shown, penalty, last, coarse, rng, stop_at_max_rank=True, progress=tell)
            if last.Z.rank == self.max_rank < target.n_columns:
                cut_off = True
                return None
            solutions[penalty] = last
            return float(np.sum((other.at(last.Z) - other.target) ** 2))

        d = target.n_columns
        operator = LinearOperator(
            (d, d), matvec=lambda v: shown.product(shown.target, v.reshape(d, -1)).ravel(), dtype=np.float64
        )
        largest = max(float(top_eigenpairs(operator, 1, rng)[0][0]), 0.0)
        best = best_penalty(largest, error)
        if cut_off and best <= min(solutions, default=best):  # the error was still falling
            warn(
                f"the search for a penalty ended at max_rank={self.max_rank} eigenpairs: a smaller one may be better; "
                "raise max_rank",
                ConvergenceWarning,
            )
        return best, solutions.get(best, last)

    def _hold(self, space: RowSpace, panel: PanelLike | None) -> None:
        super()._hold(space, panel)
        self.components_, self.eigenvalues_ = self.components_[: self.rank], self.eigenvalues_[: self.rank]

    _saved_arrays: ClassVar[tuple[str, ...]] = ("spectrum",)
