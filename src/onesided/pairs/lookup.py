"""Standard errors of measured entries of T, for the pairs asked for, without the rest of Ω.

Measured entries are about these very rows. T̂_ij is the mean of N products out of the n that T = MᵀM/n averages, a
sample from a finite population, so its standard error is the root of

    s² (1/N − 1/n),    s² = (N s²_ij + 4 κ T̂_ii T̂_jj) / (N − 1 + 4),    s²_ij the mean squared deviation of the products

as in :func:`onesided.pairs.moments.standard_errors`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from onesided.engines.threads import cut
from onesided.errors import InputError, counted
from onesided.pairs.moments import POOLED_ROWS, PairMoments
from onesided.panels.panel import Panel
from onesided.panels.positions import checked_positions

Array = npt.NDArray[Any]

SAMPLED_PRODUCTS = 1 << 23  # of two entries of a row: up to this many, κ is fitted to all pairs
BLOCK_ENTRIES = 1 << 22  # entries of columns compared at a time


@dataclass(frozen=True, eq=False)
class MeasuredErrors:
    """Standard errors of T̂ as an estimate of these rows' own T, at the pairs asked for.

    >>> panel = Panel.from_dense([[1.0, 2.0, np.nan], [3.0, 1.0, np.nan], [np.nan, 1.0, 1.0]])
    >>> measured_errors(panel).at([0, 0], [1, 2]).round(3)
    array([0.289,   inf])
    """

    panel: Panel
    sizes: Array  # T̂_jj
    ratios: tuple[float, float]  # κ on the diagonal and off it

    def at(self, rows: Any, columns: Any) -> Array:
        """One standard error for each pair of positions; infinite where no row of positive weight has both."""
        i, j = pair_positions(rows, columns, self.panel.n_columns)
        sums = _Sums(*self.panel.total(partial(_pair_sums, i=i, j=j)))
        pooled = np.where(i == j, *self.ratios) * self.sizes[i] * self.sizes[j]
        variance = (sums.deviance + POOLED_ROWS * pooled) / (sums.freedom + POOLED_ROWS)
        n = max(int(np.count_nonzero(self.panel.row_weights)), 1)
        seen = sums.rows > 0
        count = np.where(seen, sums.effective_count, 1.0)
        return np.where(seen, np.sqrt(variance * np.maximum(1 / count - 1 / n, 0)), np.inf)


def measured_errors(panel: Panel) -> MeasuredErrors:
    """Fit κ, once for a panel; standard errors follow when they are asked for.

    On the diagonal κ is fitted to all columns. Off it, to all pairs of columns where rows hold at most 2²³ products;
    otherwise to the pairs among some columns, evenly spaced from the least to the most often seen.

    >>> panel = Panel.from_dense([[1.0, 2.0, np.nan], [3.0, 1.0, np.nan], [2.0, 2.0, 1.0]])
    >>> measured_errors(panel).at([0, 0], [1, 2]).round(2)  # all rows have the first pair, one row has the second
    array([0.  , 0.47])
    """
    own = _Sums(*panel.total(_column_sums))
    sizes = own.mean
    moments = PairMoments.from_panel(some_columns(panel)[0])
    i, j = moments.pairs()
    off = i != j
    kept = moments.diagonal(moments.sums / moments.counts)
    others = _Sums(
        moments.rows, moments.counts, moments.counts**2 / moments.effective_counts, moments.sums, moments.squares
    )
    return MeasuredErrors(panel, sizes, (_ratio(own, sizes**2), _ratio(others.where(off), (kept[i] * kept[j])[off])))


class _Sums(NamedTuple):
    """Sums over the rows that have a pair, one for each pair: rows, w, w², wp and wp²."""

    rows: Array
    weights: Array
    squared_weights: Array
    products: Array
    squares: Array

    def where(self, chosen: Array) -> _Sums:
        return _Sums(*(part[chosen] for part in self))

    @property
    def effective_count(self) -> Array:
        return self.weights**2 / np.where(self.rows > 0, self.squared_weights, 1.0)

    @property
    def mean(self) -> Array:
        return self.products / np.where(self.rows > 0, self.weights, 1.0)

    @property
    def mean_square(self) -> Array:
        return self.squares / np.where(self.rows > 0, self.weights, 1.0)

    @property
    def freedom(self) -> Array:
        return np.where(self.rows > 1, np.maximum(self.effective_count - 1, 0.0), 0.0)

    @property
    def deviance(self) -> Array:
        """Squared deviations from the mean, added up; none where there is nothing to deviate from."""
        spread = np.maximum(self.mean_square - self.mean**2, 0.0)
        return np.where(self.freedom > 0, self.effective_count * spread, 0.0)


def _ratio(sums: _Sums, scale: Array) -> float:
    """κ: Σ deviance / Σ freedom · T̂_iiT̂_jj. Where no pair was seen twice, mean squares bound the variances."""
    fitted = float(sums.freedom @ scale)
    if fitted > 0:
        return float(sums.deviance.sum()) / fitted
    total = float(scale.sum())
    return float(sums.mean_square.sum()) / total if total > 0 else 0.0


def _column_sums(panel: Panel) -> Array:
    """The five sums of each column with itself."""
    weights = np.repeat(panel.row_weights, panel.row_counts)
    squares = panel.values.astype(np.float64) ** 2
    parts = (weights > 0, weights, weights**2, weights * squares, weights * squares**2)
    return np.stack([np.bincount(panel.columns, part, minlength=panel.n_columns) for part in parts])


def _pair_sums(panel: Panel, i: Array, j: Array) -> Array:
    """The five sums of some pairs: the entries of each column j are looked up among those of column i."""
    totals = np.zeros((5, len(i)))
    order = np.argsort(i, kind="stable")
    first, starts = np.unique(i[order], return_index=True)
    for column, group in zip(first, np.split(order, starts[1:]), strict=False):  # no pairs: one empty group
        lengths = np.concatenate([[0], np.cumsum(panel.column_counts[j[group]])])
        for low, high in cut(lengths, BLOCK_ENTRIES):
            totals[:, group[low:high]] = _sums_beside(panel, int(column), j[group[low:high]])
    return totals


def _sums_beside(panel: Panel, column: int, others: Array) -> Array:
    """The five sums of one column with each of the others."""
    indptr, rows, values = panel.by_column
    mine = slice(indptr[column], indptr[column + 1])
    lengths = indptr[others + 1] - indptr[others]
    pair = np.repeat(np.arange(len(others)), lengths)
    entries = np.arange(len(pair)) + np.repeat(indptr[others] - (np.cumsum(lengths) - lengths), lengths)
    at = np.searchsorted(rows[mine], rows[entries])
    shared = np.flatnonzero(at < mine.stop - mine.start)
    shared = shared[rows[mine][at[shared]] == rows[entries[shared]]]
    weights = panel.row_weights[rows[entries[shared]]]
    products = values[mine][at[shared]].astype(np.float64) * values[entries[shared]]
    parts = (weights > 0, weights, weights**2, weights * products, weights * products**2)
    return np.stack([np.bincount(pair[shared], part, minlength=len(others)) for part in parts])


def some_columns(panel: Panel) -> tuple[Panel, Array]:
    """The panel of as many columns as have about 2²³ products, evenly spaced by popularity, and their positions."""
    products = float(np.sum(panel.row_counts.astype(np.float64) ** 2))
    number = max(2, int(panel.n_columns * np.sqrt(SAMPLED_PRODUCTS / max(products, 1.0))))
    if number >= panel.n_columns:
        return panel, np.arange(panel.n_columns)
    by_popularity = np.argsort(panel.column_counts, kind="stable")
    chosen = np.sort(by_popularity[((np.arange(number) + 0.5) * panel.n_columns / number).astype(np.int64)])
    return panel.take_columns(chosen), chosen


def pair_positions(rows: Any, columns: Any, d: int) -> tuple[Array, Array]:
    """Two lists of column positions of one length."""
    i, j = (checked_positions(positions, d, "column") for positions in (rows, columns))
    if len(i) != len(j):
        raise InputError(f"{counted(len(i), 'row position')} and {counted(len(j), 'column position')}; give pairs")
    return i, j
