"""From a panel to its row space: means, a factor and the noise around them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from onesided.arrays import host, namespace
from onesided.engines.engine import engine_for
from onesided.engines.threads import single_blas_thread
from onesided.errors import InputError
from onesided.fitting.objective.rows import Diagonal, RowObjective
from onesided.fitting.solvers.lbfgs import lbfgs
from onesided.fitting.solvers.result import Progress
from onesided.fitting.solvers.spectral import spectral_start
from onesided.model.axes import principal_axes
from onesided.model.row_space import RowSpace
from onesided.pairs.column_sums import column_means, column_sums
from onesided.panels.panel_like import PanelLike
from onesided.storage.checkpoint import NOWHERE, Work

Array = npt.NDArray[Any]
Center = Literal["none", "columns", "both"]

SMALLEST_NOISE = 1e-300  # for a panel of zeros, which has no unit
NOISE_FLOOR = 1e-4  # of the mean square: below it, imputation would trust single entries too far


def moment_solution(
    panel: PanelLike,
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

    >>> from onesided.panels.panel import Panel
    >>> found = moment_solution(Panel.from_dense([[1.0, 2.0], [2.0, 4.0]]), rank=1, center="none", ridge=0.0)
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
    panel: PanelLike, *, center: Center, diagonal: Diagonal, weight_exponent: float, ridge: float
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


def noise_variance(panel: PanelLike, mean: Any, factor: Any, row_variance: float = 0.0) -> Any:
    """ψ_j: what the factor leaves of the variance of an entry, one value for all columns that it places.

    The mean over entries of (v − μ_j)² − ‖x_j‖² − τ². A column that is never seen beside another has no factor, so
    all of the variance is left.
    """
    engine = engine_for(panel)
    around = column_sums(engine, mean)
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


def check_fittable(panel: PanelLike, rank: int) -> None:
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
