"""The least that any method must beat: one number for all of T, and the column means alone."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from onesided.arrays import Array
from onesided.baselines.baseline import Baseline, Fitted
from onesided.fitting.moment_solution import moment_solution
from onesided.fitting.refinement import refine
from onesided.fitting.setting import Setting, with_weights_as_counts
from onesided.fitting.solvers.result import Progress, SolveResult
from onesided.model.row_space import noiseless
from onesided.pairs.column_sums import column_means, column_sums, largest_value
from onesided.pairs.measured import Measured
from onesided.panels.panel import Panel


class MeansAlone(Baseline):
    """A row is predicted by ``mean_``, whatever it holds: its coordinates are zero. Nothing is drawn at random."""

    rank = 0

    def _coordinates(self, panel: Panel) -> Array:
        return np.zeros((panel.n_rows, len(self.components_)))


class Constant(MeansAlone):
    """T = c · 11ᵀ, c the mean product of two different entries of a row; every entry of M is the mean of all.

    Each product weighs alike but for the weight of its row. A second moment has no negative eigenvalue: where c is
    below zero, T is zero.

    Attributes
    ----------
    factor_ : array of d × 1
        √c throughout.
    mean_ : array of d
        The mean of all entries. It is not part of T: c is.
    components_, eigenvalues_, second_moment_, column_ids_
        As of every estimator.

    Examples
    --------
    >>> model = Constant().fit([[1.0, 2.0, np.nan], [3.0, 1.0, 1.0]])
    >>> round(model.second_moment_[0, 2].value, 10)  # (2 + 3 + 3 + 1) / 4
    2.25
    >>> model.impute_at([[1.0, 2.0, np.nan]], [0], [2])
    array([1.6])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}
    _mean_in_moment = False

    def _fit(self, panel: Panel, measured: Measured, progress: Progress | None) -> Fitted:
        scale = largest_value(panel) or 1.0
        own = column_sums(panel, scale=scale)
        level = float(own.sums.sum() / own.counts.sum())
        mean = np.full(panel.n_columns, level * scale)
        factor = np.full((panel.n_columns, 1), np.sqrt(max(own.mean_product, 0.0)) * scale)
        return noiseless(factor, mean), SolveResult(factor, "completed", (), 1)


class ColumnMeans(MeansAlone):
    """T = μμᵀ, and every entry of M the mean of its column.

    Parameters
    ----------
    shrink : bool, default False
        Whether means are pulled to their own mean by empirical Bayes: μ_j ~ N(m, σ²) with everything estimated, which
        is what :class:`onesided.OneSidedCompletion` of rank 0 does with ``center="columns"`` and ``scale="none"``.

    Attributes
    ----------
    mean_ : array of d
        μ; the mean of all entries for a column never seen.
    factor_, components_, eigenvalues_ : arrays of d × 0, 0 × d and 0
        There is no factor.
    second_moment_, column_ids_
        As of every estimator.

    Examples
    --------
    >>> model = ColumnMeans().fit([[1.0, 2.0, np.nan], [3.0, 1.0, 1.0]])
    >>> model.mean_, model.second_moment_[0, 1].value
    (array([2. , 1.5, 1. ]), 3.0)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"shrink": ["boolean"]}

    def __init__(self, *, shrink: bool = False) -> None:
        self.shrink = shrink

    def _fit(self, panel: Panel, measured: Measured, progress: Progress | None) -> Fitted:
        if self.shrink:
            counted = with_weights_as_counts(panel)
            start = moment_solution(counted, Setting(0))
            mean = refine(counted, start, center="columns", progress=progress).row_space.mean
        else:
            mean = column_means(panel)
        factor = np.zeros((panel.n_columns, 0))
        return noiseless(factor, mean), SolveResult(factor, "completed", (), 1)
