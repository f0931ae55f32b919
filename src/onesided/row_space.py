"""From a panel to its row space: means, a factor and the noise around them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from onesided.arrays import host, like, namespace
from onesided.checkpoint import NOWHERE, Work
from onesided.engines.engine import engine_for
from onesided.engines.local import single_blas_thread
from onesided.errors import InputError
from onesided.objective.rows import Diagonal, RowObjective
from onesided.panel import Panel
from onesided.solvers.lbfgs import lbfgs
from onesided.solvers.result import Progress, SolveResult
from onesided.solvers.spectral import spectral_start
from onesided.tallies import column_means, tally

Array = npt.NDArray[Any]
Center = Literal["none", "columns", "both"]

TALL = 1 << 22  # columns beyond which a singular value decomposition takes minutes
SMALLEST_NOISE = 1e-300  # for a panel of zeros, which has no unit
NOISE_FLOOR = 1e-4  # of the mean square: below it, imputation would trust single entries too far


@dataclass(frozen=True)
class Refinement:
    """How the variational passes ended: ``change`` is what the last one moved, as a share of what it could move.

    >>> from onesided import synthetic
    >>> from onesided.refinement import refine
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(2000, 30, 2, rng=0), 6, rng=1)
    >>> found = refine(panel, complete(panel, rank=2, center="none"), center="none").refinement
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
    >>> found = complete(synthetic.sample_fixed(truth, 6, rng=1), rank=2)
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
    work: Work = NOWHERE,
) -> RowSpace:
    """Minimise the precision-weighted loss over the rows of a panel, from a spectral start.

    The parameters are those of :class:`onesided.OneSidedCompletion`.

    >>> found = complete(Panel.from_dense([[1.0, 2.0], [2.0, 4.0]]), rank=1, center="none", ridge=0.0)
    >>> (found.factor @ found.factor.T).round(3)[0, 1]
    np.float64(5.0)
    """
    check_fittable(panel, rank)
    rng = np.random.default_rng(rng)
    with single_blas_thread():
        mean, objective = moment_objective(
            panel, center=center, diagonal=diagonal, weight_exponent=weight_exponent, ridge=ridge
        )
        begun = work.load("start")
        start = spectral_start(objective, rank, rng) if begun is None else objective.engine.array(begun["start"])
        if begun is None and work.kept:
            work.save("start", {"start": host(start)})
        solve = lbfgs(
            objective.value_and_gradient,
            start,
            objective.metric(start),
            tol=tol,
            max_passes=max_passes,
            resolution=objective.resolution,
            progress=progress,
            work=work,
        )
        factor = principal_axes(solve.factor * objective.scale)
        row_variance = objective.row_variance * objective.scale**2
        noise = host(noise_variance(panel, mean, factor, row_variance))
        factor = host(factor)
        return RowSpace(host(mean), factor, noise, replace(solve, factor=host(solve.factor)), row_variance)


def moment_objective(
    panel: Panel, *, center: Center, diagonal: Diagonal, weight_exponent: float, ridge: float
) -> tuple[Any, RowObjective]:
    """The column means and the loss around them, rows weighed by their number of entries to a power."""
    counts = panel.row_counts
    weights = np.maximum(counts, 1) ** float(weight_exponent)  # in place from here: there may be very many rows
    weights[counts == 0] = 0.0
    weights *= panel.row_weights
    weights /= weights.max()
    mean = engine_for(panel).array(np.zeros(panel.n_columns)) if center == "none" else column_means(panel)
    return mean, RowObjective(
        panel,
        center=mean,
        weights=weights,
        diagonal=diagonal,
        ridge=ridge,
        row_effect=center == "both",
    )


def principal_axes(factor: Any) -> Any:
    """The factor of the same XXᵀ whose columns are orthogonal, longest first, largest entry positive."""
    return factor @ like(factor, principal_rotation(factor))


def principal_rotation(factor: Any) -> Array:
    """The orthogonal matrix that takes a factor to its principal axes.

    Of very many columns, or on a device, from the factor's inner products, which are few: columns shorter than 10⁻⁸ of
    the longest are then orthogonal only to rounding beside that one.
    """
    if factor.shape[1] == 0:
        return np.zeros((0, 0))
    if not isinstance(factor, np.ndarray) or len(factor) > TALL:
        _, turn = np.linalg.eigh(host(factor.T @ factor))
        turn = turn[:, ::-1]
        vectors = factor @ like(factor, turn.copy())
        largest = host(vectors[abs(vectors).argmax(0), np.arange(len(turn))])
        return np.asarray(turn * np.where(largest < 0, -1.0, 1.0))
    vectors, _, axes = np.linalg.svd(factor, full_matrices=len(factor) < factor.shape[1])
    largest = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(vectors.shape[1])]
    signs = np.ones(len(axes))
    signs[: len(largest)] = np.where(largest < 0, -1.0, 1.0)
    return np.asarray(axes.T * signs)


def noise_variance(panel: Panel, mean: Any, factor: Any, row_variance: float = 0.0) -> Any:
    """ψ_j: what the factor leaves of the variance of an entry, one value for all columns that it places.

    The mean over entries of (v − μ_j)² − ‖x_j‖² − τ². A column that is never seen beside another has no factor, so
    all of the variance is left.
    """
    engine = engine_for(panel)
    around = tally(engine, mean)
    total = around.mean_square
    rounding = 1e-8 * engine.largest_value()
    floor = NOISE_FLOOR * total if total > 0 else max(rounding**2, SMALLEST_NOISE)
    norms = (factor**2).sum(1) + row_variance
    placed = norms > 0
    left = total
    if (around.counts[placed] > 0).any():
        explained = around.squares[placed] - around.counts[placed] * norms[placed]
        left = float(explained.sum() / around.counts[placed].sum())
    return namespace(norms).where(placed, 0 * norms + max(left, floor), max(total, floor))


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
