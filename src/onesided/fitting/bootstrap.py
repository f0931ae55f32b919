"""How sure: bootstrap bands for what the low-rank model says.

The bootstrap is about the population that the rows come from: its covariance's eigenvalues and row space, and its
second moment off the diagonal, L_ij = μ_iμ_j + τ² + x_iᵀx_j. With ρ the ridge, here a tenth of the sampling noise,

    w*_u = w_u · Poisson(1),    θ* = θ(w*, 2ρ),    band: 2θ̂ − mean θ* ± t · rms(θ* − θ̂)

Noise in the pairs pushes eigenvalues up, and does so again in each replicate; the ridge shrinks them in proportion
to ρ, and its double shrinks them as much again. So mean θ* − θ̂ estimates both biases at once. Without any ridge a
factor too many can grow without bound on one column, whose second moment is free.

Shares of 90% bands that hold the truth, by ``benchmarks/bands.py``: 1,000 panels in the first two lines, 200 in the
others. Pairs in the fifth column were never measured; measured ones (:mod:`onesided.pairs.lookup`) are held to T of
the rows drawn.

=====================================  ==========  =======  =============  ==============  ========
rows × columns, entries per row        largest λ   last λ   largest angle  never measured  measured
=====================================  ==========  =======  =============  ==============  ========
noisy mixture, 2000 × 40, 8            0.89        0.91     0.93           0.90            0.90
linear mixture, 2000 × 40, 8           0.90        0.93     0.99           0.90            0.89
linear mixture, 500 × 40, 8            0.91        0.90     0.97           0.88            0.88
… with a weak factor, 2000 × 40, 8     0.92        0.98     0.89           0.90            0.89
… two factors too many, 2000 × 40, 8   0.92        0.50     0.01           0.89            0.89
linear mixture, 300 × 150, 4           0.11        0.00     0.02           0.73            0.90
=====================================  ==========  =======  =============  ==============  ========

Bands are too narrow for factors beyond the true rank, and for everything where pairs are seen less than about five
times on average (0.16 in the last line): there the loss fits noise, in each replicate as in the whole. The angles
show it: where even the smallest may exceed 0.4 radians, no band can be relied on. And bands know nothing of a model
that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypedDict, Unpack

import numpy as np

from onesided.arrays import Array, host, inner
from onesided.engines.placement import placed_like
from onesided.engines.threads import single_blas_thread
from onesided.errors import InputError, check_choice, counted
from onesided.fitting.moment_solution import moment_objective, moment_solution
from onesided.fitting.objective.rows import Diagonal
from onesided.fitting.setting import Center, Setting, check_fittable
from onesided.fitting.solvers.lbfgs import lbfgs
from onesided.model.row_space import RowSpace
from onesided.model.uncertainty import Bands, Bootstrap
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike
from onesided.panels.positions import checked_positions

Replicated = Callable[[int, int], None]  # called with the replicates made so far and their number in all

__all__ = ["Bands", "Bootstrap", "bootstrap"]  # what ``onesided.uncertainty`` offers

RIDGE = 0.1  # of the sampling noise: it hardly shrinks what is there, and keeps what is not from growing
FITTED = 1e-10  # share of the loss still to be had when the fit to all rows ends
SETTLED = 1e-4  # share still to be had, of what resampling opened, when the fit of a replicate ends
MOST_PASSES = 300
FEWEST_ROWS = 10
MOST_BYTES = 1 << 30


class Model(TypedDict, total=False):
    """What the moment estimator is fitted with, beside rank and ridge."""

    center: Center
    diagonal: Diagonal
    weight_exponent: float


def bootstrap(
    panel: PanelLike,
    *,
    rank: int,
    replicates: int = 50,
    columns: Any = None,
    rng: int | np.random.Generator = 0,
    scales: Array | None = None,
    progress: Replicated | None = None,
    **model: Unpack[Model],
) -> Bootstrap:
    """Resample the rows and fit the moment estimator again, each time from the solution for all rows.

    Parameters
    ----------
    panel : Panel
        At least ten of its rows must have two entries and a positive weight.
    rank : int
        That of the model.
    replicates : int
    columns : positions, optional
        Keep the replicates' loadings of these columns only, for :meth:`Bootstrap.entries`; all where not given, none
        for ``[]``. They take 4 · replicates · columns · (rank + 2) bytes, of which a gibibyte is the limit.
    rng : int or Generator
        The same seed gives the same bands at any number of threads.
    scales : array of d, optional
        The model's scales of columns; one where not given.
    progress : callable, optional
        Called after each replicate with the number made and the number in all.
    **model
        The model's ``center`` ("columns" by default), ``diagonal`` ("free") and ``weight_exponent`` (−0.5). Its ridge
        is not among them: bands are for what is not shrunk, and an eigenvalue that the model shrinks may lie below
        its band.

    Examples
    --------
    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(2000, 20, 2, rng=0), 6, rng=1)
    >>> bands = bootstrap(panel, rank=2, replicates=20).eigenvalues()
    >>> np.all((bands.lower < bands.estimate) & (bands.estimate < bands.upper))
    np.True_
    """
    setting = Setting(rank, **model, refined=False, ridge=RIDGE, tol=FITTED, max_passes=MOST_PASSES)
    check_choice("center", setting.center, ("none", "columns", "both"))
    usable = int(np.count_nonzero(panel.row_weights[panel.row_counts > 1]))
    if usable < FEWEST_ROWS:
        raise InputError(
            f"{counted(usable, 'row')} with two entries and a positive weight; a bootstrap over rows needs at least "
            f"{FEWEST_ROWS}"
        )
    rng = np.random.default_rng(rng)
    check_fittable(panel, rank)
    kept = _kept_columns(panel, columns, rank, replicates)
    if panel.dtype != np.float64:  # replicates differ by little: single precision could not tell them from the whole
        panel = panel.each(_doubled)
    solution = moment_solution(panel, setting, scales=scales, rng=rng)
    whole = _loadings(solution.row_space)
    shifts = np.empty((replicates, len(kept), rank + 2), dtype=np.float32)
    spectra, tilts = np.empty((replicates, rank)), np.empty((replicates, rank))
    unsettled = int(solution.solve.status != "converged")
    with single_blas_thread():
        basis_of_all, spectrum = _spectrum(whole[:, 2:])
        for k in range(replicates):
            loadings, settled = _refit(_resampled(panel, rng), whole[:, 2:], setting, scales)
            shifts[k] = (loadings - whole)[kept]
            basis, spectra[k] = _spectrum(loadings[:, 2:])
            tilts[k] = _angles(basis_of_all, basis)
            unsettled += not settled
            if progress is not None:
                progress(k + 1, replicates)
    return Bootstrap(panel.n_columns, kept, whole[kept], shifts, spectrum, spectra, tilts, unsettled)


def _loadings(space: RowSpace) -> Array:
    """(μ, τs, X): the products of their rows are the entries of L."""
    return np.column_stack([space.mean, np.sqrt(space.row_variance) * space.units, space.factor])


def _resampled(panel: PanelLike, rng: np.random.Generator) -> PanelLike:
    """Row weights times Poisson(1), drawn again should no row with two entries be left."""
    while True:
        weights = panel.row_weights * rng.poisson(1.0, size=panel.n_rows)
        if np.any(weights[panel.row_counts > 1]):
            return panel.with_row_weights(weights)


def _refit(panel: PanelLike, whole: Array, setting: Setting, scales: Array | None) -> tuple[Array, bool]:
    """The loadings fitted to resampled rows, from the factor of all rows, and whether that converged.

    Poisson weights double Σw², which makes the sampling noise √2 times as large: another √2 doubles the ridge. A
    column that no resampled row has beside another is left without a factor, as in any fit.
    """
    mean, objective = moment_objective(panel, replace(setting, ridge=float(np.sqrt(2) * setting.ridge)), scales)
    start = objective.engine.array(whole) / objective.scale[:, None]
    start[objective.pair_counts == 0] = 0.0
    metric = objective.metric(start)
    loss, gradient = objective.value_and_gradient(start)
    opened = float(inner(gradient, metric(gradient))) / 2
    solve = lbfgs(
        objective.value_and_gradient,
        start,
        metric,
        tol=max(SETTLED * opened / abs(loss), objective.resolution) if loss else 0.0,
        max_passes=setting.max_passes,
        resolution=objective.resolution,
    )
    factor, row_variance = host(solve.factor * objective.scale[:, None]), objective.row_variance * objective.unit**2
    space = RowSpace(host(mean), factor, np.zeros(len(factor)), row_variance, scales=scales)
    return _loadings(space), solve.status == "converged"


def _spectrum(factor: Array) -> tuple[Array, Array]:
    """An orthonormal basis of the factor's span and the eigenvalues of XXᵀ; zeros beyond its numerical rank."""
    if factor.shape[1] == 0:
        return factor, np.zeros(0)
    vectors, lengths, _ = np.linalg.svd(factor, full_matrices=False)
    real = lengths > np.finfo(float).eps * len(factor) * lengths[0]
    return np.where(real, vectors, 0.0), lengths**2


def _angles(space: Array, other: Array) -> Array:
    """Principal angles, smallest first; a right angle for each direction that either space lacks."""
    if space.shape[1] == 0:
        return np.zeros(0)
    return np.asarray(np.arccos(np.clip(np.linalg.svd(space.T @ other, compute_uv=False), 0.0, 1.0)))


def _doubled(panel: Panel) -> Panel:
    values = panel.values.astype(np.float64)
    double = Panel(panel.indptr, panel.columns, values, panel.n_columns, row_weights=panel.row_weights)
    return placed_like(double, panel)


def _kept_columns(panel: PanelLike, columns: Any, rank: int, replicates: int) -> Array:
    if replicates < 2:
        raise InputError(f"replicates={replicates}; expected at least 2, and 50 for bands that can be relied on")
    every = np.arange(panel.n_columns)
    kept = every if columns is None else np.unique(checked_positions(columns, panel.n_columns, "column"))
    size = 4 * replicates * len(kept) * (rank + 2)
    if size > MOST_BYTES:
        raise InputError(
            f"{counted(replicates, 'replicate')} of {counted(len(kept), 'column')} at rank {rank} take "
            f"{size / 2**30:.1f} GiB, and {MOST_BYTES / 2**30:.1f} is the limit; pass columns=, the positions of those "
            "whose entries will be asked for"
        )
    return kept
