"""From a panel to its row space: means, a factor and the noise around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from onesided.engines.local import single_blas_thread
from onesided.errors import InputError
from onesided.objective.rows import Diagonal, RowObjective
from onesided.panel import Panel
from onesided.solvers.lbfgs import lbfgs
from onesided.solvers.result import Progress, SolveResult
from onesided.solvers.spectral import spectral_start

Array = npt.NDArray[Any]
Center = Literal["none", "columns"]

SMALLEST_NOISE = 1e-300  # for a panel of zeros, which has no unit
NOISE_FLOOR = 1e-4  # of the mean square: below it, imputation would trust single entries too far


@dataclass(frozen=True, eq=False)
class RowSpace:
    """What was recovered: ``T ≈ μμᵀ + XXᵀ``, the noise around it, and how the solver ended."""

    mean: Array
    factor: Array
    noise_variance: Array
    solve: SolveResult


def complete(
    panel: Panel,
    *,
    rank: int,
    center: Center = "columns",
    diagonal: Diagonal = "free",
    weight_exponent: float = -0.5,
    ridge: float = 1.0,
    tol: float = 1e-6,
    max_passes: int = 300,
    rng: int | np.random.Generator = 0,
    progress: Progress | None = None,
) -> RowSpace:
    """Minimise the precision-weighted loss over the rows of a panel, from a spectral start.

    The parameters are those of :class:`onesided.OneSidedCompletion`.

    >>> found = complete(Panel.from_dense([[1.0, 2.0], [2.0, 4.0]]), rank=1, center="none", ridge=0.0)
    >>> (found.factor @ found.factor.T).round(3)[0, 1]
    np.float64(5.0)
    """
    check_fittable(panel, rank)
    rng = np.random.default_rng(rng)
    counts = panel.row_counts
    weights = panel.row_weights * np.where(counts > 0, np.maximum(counts, 1) ** float(weight_exponent), 0.0)
    weights /= weights.max()
    mean = column_means(panel) if center == "columns" else np.zeros(panel.n_columns)
    with single_blas_thread():
        objective = RowObjective(panel, center=mean, weights=weights, diagonal=diagonal, ridge=ridge)
        start = spectral_start(objective, rank, rng)
        solve = lbfgs(
            objective.value_and_gradient,
            start,
            objective.metric(start),
            tol=tol,
            max_passes=max_passes,
            resolution=objective.resolution,
            progress=progress,
        )
        factor = principal_axes(solve.factor * objective.scale)
        return RowSpace(mean, factor, noise_variance(panel, mean, factor), solve)


def column_means(panel: Panel) -> Array:
    """The weighted mean of each column; the mean of all entries for a column never seen.

    Values are taken as differences from the column's first, so that the mean of a constant column is exact.
    """
    weights = np.repeat(panel.row_weights, panel.row_counts)
    first = np.zeros(panel.n_columns)
    first[panel.columns[::-1]] = panel.values[::-1]
    sums = np.bincount(panel.columns, weights * (panel.values - first[panel.columns]), minlength=panel.n_columns)
    counts = np.bincount(panel.columns, weights, minlength=panel.n_columns)
    means = first + sums / np.where(counts > 0, counts, 1.0)
    return np.where(counts > 0, means, counts @ means / counts.sum())


def principal_axes(factor: Array) -> Array:
    """The factor of the same XXᵀ whose columns are orthogonal, longest first, largest entry positive."""
    if factor.shape[1] == 0:
        return factor
    vectors, lengths, _ = np.linalg.svd(factor, full_matrices=False)
    signs = np.sign(vectors[np.argmax(np.abs(vectors), axis=0), np.arange(len(lengths))])
    return np.asarray(vectors * (lengths * np.where(signs < 0, -1.0, 1.0)))


def noise_variance(panel: Panel, mean: Array, factor: Array) -> Array:
    """ψ_j: what the factor leaves of the variance of an entry, one value for all columns that it places.

    The mean over entries of (v − μ_j)² − ‖x_j‖². A column that is never seen beside another has no factor, so
    all of the variance is left.
    """
    weights = np.repeat(panel.row_weights, panel.row_counts)
    residuals = panel.values - mean[panel.columns]
    total = float(weights @ residuals**2) / float(weights.sum())
    rounding = 1e-8 * float(np.max(np.abs(panel.values)))
    floor = NOISE_FLOOR * total if total > 0 else max(rounding**2, SMALLEST_NOISE)
    norms = np.sum(factor**2, axis=1)
    placed = norms[panel.columns] > 0
    left = total
    if np.any(weights[placed]):
        explained = residuals[placed] ** 2 - norms[panel.columns[placed]]
        left = float(weights[placed] @ explained) / float(weights[placed].sum())
    return np.where(norms > 0, max(left, floor), max(total, floor))


def check_fittable(panel: Panel, rank: int) -> None:
    """Refuse a panel from which no row space of this rank can be learnt."""
    n, d = panel.shape
    if panel.n_entries == 0 or not np.any(panel.row_weights[panel.row_counts > 0]):
        raise InputError(f"nothing was observed: {n} rows and {d} columns, but no entry of positive weight")
    if d == 1:
        raise InputError("the panel has one column (n_features = 1); a row space needs at least two")
    if not np.any(panel.row_weights[panel.row_counts > 1]):
        raise InputError(
            "no row has two observed entries, so no two columns were ever seen together: "
            "there is nothing to learn a row space from"
        )
    if rank > d:
        raise InputError(f"rank={rank} is larger than the panel's {d} columns; choose at most {d}")
