"""The moment solution: every pair of columns weighed by its count, found in passes over the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from onesided.arrays import Array, host, namespace
from onesided.engines.engine import engine_for
from onesided.engines.threads import single_blas_thread
from onesided.fitting.objective.rows import RowObjective
from onesided.fitting.setting import Fit, Setting
from onesided.fitting.solvers.lbfgs import lbfgs
from onesided.fitting.solvers.result import Progress
from onesided.fitting.solvers.spectral import spectral_start
from onesided.model.axes import principal_axes
from onesided.model.row_space import RowSpace
from onesided.pairs.column_sums import column_means, column_sums
from onesided.panels.panel_like import PanelLike
from onesided.storage.checkpoint import NOWHERE, Work

SMALLEST_NOISE = 1e-300  # for a panel of zeros, which has no unit
NOISE_FLOOR = 1e-4  # of the mean square: below it, imputation would trust single entries too far


def moment_solution(
    panel: PanelLike,
    setting: Setting,
    *,
    scales: Array | None = None,
    rng: int | np.random.Generator = 0,
    progress: Progress | None = None,
    work: Work = NOWHERE,
) -> Fit:
    """Minimise the precision-weighted loss over the rows of a panel, from a spectral start.

    ``scales`` are the columns' units, one where not given. The caller checks that the panel can be fitted
    (:func:`onesided.fitting.setting.check_fittable`).

    >>> from onesided import Panel
    >>> setting = Setting(1, center="none", ridge=0.0)
    >>> factor = moment_solution(Panel.from_dense([[1.0, 2.0], [2.0, 4.0]]), setting).row_space.factor
    >>> (factor @ factor.T).round(3)[0, 1]
    np.float64(5.0)
    """
    rng = np.random.default_rng(rng)
    with single_blas_thread():
        mean, objective = moment_objective(panel, setting, scales)
        if (begun := work.load("start")) is not None:
            start = objective.engine.array(begun["start"])
        else:
            start = spectral_start(objective, setting.rank, rng)
            if work.kept:
                work.save("start", {"start": host(start)})
        solve = lbfgs(
            objective.value_and_gradient,
            start,
            objective.metric(start),
            tol=setting.tol,
            max_passes=setting.max_passes,
            resolution=objective.resolution,
            progress=progress,
            work=work,
        )
        factor = principal_axes(solve.factor * objective.scale[:, None])
        row_variance = objective.row_variance * objective.unit**2
        noise = host(noise_variance(panel, mean, factor, row_variance, scales))
        space = RowSpace(host(mean), host(factor), noise, row_variance, scales=scales)
        return Fit(space, replace(solve, factor=host(solve.factor)))


def moment_objective(panel: PanelLike, setting: Setting, scales: Array | None = None) -> tuple[Any, RowObjective]:
    """The column means and the loss around them, rows weighed by their number of entries to a power."""
    counts = panel.row_counts
    weights = np.maximum(counts, 1) ** float(setting.weight_exponent)  # in place: there may be very many rows
    weights[counts == 0] = 0.0
    weights *= panel.row_weights
    weights /= weights.max()
    mean = engine_for(panel).array(np.zeros(panel.n_columns)) if setting.center == "none" else column_means(panel)
    return mean, RowObjective(
        panel,
        center=mean,
        weights=weights,
        diagonal=setting.diagonal,
        ridge=setting.ridge,
        row_effect=setting.center == "both",
        scales=scales,
    )


def noise_variance(
    panel: PanelLike, mean: Any, factor: Any, row_variance: float = 0.0, scales: Array | None = None
) -> Any:
    """ψ_j: what the factor leaves of the variance of an entry, s_j² times one value for all columns that it places.

    The mean over entries of ((v − μ_j)² − ‖x_j‖²) / s_j² − τ². A column that is never seen beside another has no
    factor, so all of the variance is left.
    """
    engine = engine_for(panel)
    s = engine.array(np.ones(panel.n_columns) if scales is None else scales)
    around = column_sums(engine, mean, s)
    total = around.mean_square
    rounding = 1e-8 * engine.largest_value() / float(s.max())
    floor = NOISE_FLOOR * total if total > 0 else max(rounding**2, SMALLEST_NOISE)
    norms = ((factor / s[:, None]) ** 2).sum(1) + row_variance
    placed = norms > 0
    left = total
    if (around.counts[placed] > 0).any():
        explained = around.squares[placed] - around.counts[placed] * norms[placed]
        left = float(explained.sum() / around.counts[placed].sum())
    xp = namespace(norms)
    return s * s * xp.where(placed, xp.full_like(norms, max(left, floor)), max(total, floor))
