"""Factor analysis of incomplete rows by expectation maximisation.

    v_uj = μ_j + λ_jᵀ z_u + ε_uj,   z ~ N(0, I),   var ε_uj = ψ_j

An iteration takes the posterior of every row's z given its observed entries, and then regresses each column on (1, z)
with E[z zᵀ] in place of z zᵀ, after which z is scaled to N(0, I) again; ψ_j is what that leaves of the column's
variance, and stays above a thousandth of the mean variance of a column. The likelihood rises with every iteration, from
a random start to a maximum nearby.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.baselines.baseline import Baseline, Fitted
from onesided.engines.cpu import chunks
from onesided.estimators.base import generator
from onesided.estimators.parameters import ranges
from onesided.fitting.moment_solution import noise_variance
from onesided.fitting.noise import Rows
from onesided.fitting.setting import with_weights_as_counts
from onesided.fitting.solvers.result import Progress, SolveResult
from onesided.kernels.bundles import Sums
from onesided.kernels.reference import from_half
from onesided.model.axes import principal_axes
from onesided.model.row_space import RowSpace
from onesided.pairs.column_sums import column_means, column_sums
from onesided.pairs.measured import Measured
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike

LEAST_NOISE = 1e-3  # of the mean variance of a column
START_SHARE = 0.1  # of a column's variance that the random start explains
RIDGE = 1e-9  # beside counts of entries: keeps a regression solvable where a column is seen too rarely


class FactorAnalysisEM(Baseline):
    """Means, a factor and a noise variance for each column, by maximum likelihood from a random start.

    A row of weight w counts as w rows.

    Parameters
    ----------
    rank : int, default 10
    iterations : int, default 100
    random_state : int, Generator, RandomState or None
        For the start.

    Attributes
    ----------
    mean_ : array of d
        μ.
    factor_ : array of d × rank
        Λ in its principal axes; columns that stand beside no other have zeros.
    noise_variance_ : array of d
        ψ.
    components_, eigenvalues_
        Of ΛΛᵀ.
    second_moment_ : SecondMoment
        μμᵀ + ΛΛᵀ off the diagonal, and the measured diagonal.
    solve_ : SolveResult
        Its history is the mean logarithm of ψ, in units of the values' variance.
    column_ids_ : array of d

    Examples
    --------
    >>> from onesided import synthetic
    >>> truth = synthetic.noisy_mixture(2000, 20, 2, sigma=1.0, rng=0)
    >>> panel = synthetic.sample_fixed(truth, 8, rng=1)
    >>> T = FactorAnalysisEM(rank=2, random_state=0).fit(panel).second_moment_.to_dense()
    >>> bool(np.linalg.norm(T - truth.second_moment()) < 0.1 * np.linalg.norm(T))
    True
    """

    _parameter_constraints = ranges("rank", "iterations", "random_state")
    _output = "blend"

    def __init__(self, rank: int = 10, *, iterations: int = 100, random_state: Any = None) -> None:
        self.rank = rank
        self.iterations = iterations
        self.random_state = random_state

    def _read_for_fit(self, X: Any) -> PanelLike:
        return with_weights_as_counts(super()._read_for_fit(X))

    def _fit(self, panel: Panel, measured: Measured, progress: Progress | None) -> Fitted:
        history: list[float] = []
        mean = column_means(panel)
        rows = Rows(panel, mean)
        if rows.unit == 0:  # no variation: there is nothing to estimate
            loadings = np.zeros((panel.n_columns, self.rank))
            noise = noise_variance(panel, mean, loadings)
        else:
            loadings, noise, least = self._start(panel, mean, rows)
            certain = np.zeros((panel.n_columns, (self.rank + 1) * (self.rank + 2) // 2))  # a covariance of zero
            for iteration in range(self.iterations):
                columns = rows.engine.prepare_columns(mean, loadings, noise, certain, rows.units)
                shift, loadings, noise = _maximised(rows.engine.posterior_sums(columns), rows, noise, least)
                mean = mean + rows.unit * shift
                history.append(float(np.log(noise).mean()))
                if progress is not None:
                    progress(iteration + 1, history[-1])
            loadings, noise = rows.unit * loadings, rows.unit * rows.unit * noise
        factor = principal_axes(loadings)
        return RowSpace(mean, factor, noise), SolveResult(factor, "completed", tuple(history), max(1, len(history)))

    def _start(self, panel: Panel, mean: Array, rows: Rows) -> tuple[Array, Array, float]:
        """Loadings at random, noise with all of the variance, and the least it may become; in ``rows.unit``."""
        own = column_sums(panel, mean, rows.unit)
        seen = own.counts > 0
        variance = own.squares / np.where(seen, own.counts, 1.0)
        least = LEAST_NOISE * float(variance[seen].mean())
        loadings = generator(self.random_state).standard_normal((panel.n_columns, self.rank))
        loadings *= np.sqrt(START_SHARE * np.where(rows.placed, variance, 0.0) / self.rank)[:, None]
        return loadings, np.maximum(np.where(seen, variance, own.mean_square), least), least

    def _coordinates(self, panel: Panel) -> Array:
        """The posterior mean of z."""
        return self.row_space_.predictor.coordinates(panel)

    def _loadings(self) -> Array:
        return self.factor_

    @property
    def noise_variance_(self) -> Array:
        """ψ."""
        return self.row_space_.noise_variance


def _maximised(sums: Sums, rows: Rows, noise: Array, least: float) -> tuple[Array, Array, Array]:
    """Each column's regression on (1, z): how far its mean moves, its loadings, and the noise that is left.

    In the end z is put back to N(0, I): what its posterior means and covariances come to goes into means and loadings
    (parameter expansion). Without that, loadings that began too small grow by little at a time where noise is low.
    """
    size = int(np.sqrt(2 * len(sums.total)))
    first, half = sums.first[:, :size], size * (size + 1) // 2
    at = np.empty_like(first)
    for part in chunks(len(first), half):
        gram = from_half(sums.second[part, :half]) + RIDGE * np.eye(size)
        at[part] = np.linalg.solve(gram, first[part, :, None])[:, :, 0]
    seen = rows.counts > 0
    left = (sums.squares - np.sum(at * first, axis=1)) / np.where(seen, rows.counts, 1.0)
    rows_of = from_half(sums.total[None, :])[0]
    center = rows_of[1:, 0] / rows_of[0, 0]
    spread = rows_of[1:, 1:] / rows_of[0, 0] - np.outer(center, center)
    loadings = at[:, 1:] @ np.linalg.cholesky(spread)
    return at[:, 0] + at[:, 1:] @ center, loadings, np.where(seen, np.maximum(left, least), noise)
