"""How far to trust a measurement beside the model: κ of the blend, for pairs and for means, from held-out rows.

    B_ij = (N_ij T̂_ij + κ L_ij) / (N_ij + κ),   L = mmᵀ + YYᵀ,   m_j = (N_jj m̂_j + κ' μ_j) / (N_jj + κ')

with μ and Y the model's means and loadings, T̂ and m̂ measured. The model's means are those of all rows, as if which
entries a row has did not depend on it; where it does, the rows that have a column have another mean there, and pairs
show it.

A fifth of the rows is held out. The model is fitted and T̂, m̂ and N are measured on the others; then B predicts the
products p of two entries of a held-out row, in units of their columns' scales. The gain of (κ, κ') over the model alone
is the sum over these products of (p − L_ij(∞))² − (p − B_ij)². Of those whose gain exceeds twice its standard error,
that of a sum over held-out rows, the two of the largest gain are taken; where there are none, or fewer than 30 held-out
rows have two entries, both are infinite: the model stands alone. Of rows with many products some, drawn at random,
stand for all, and where the panel has more than 2²³ products, the pairs among some columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from onesided.arrays import Array, host
from onesided.engines.engine import engine_for
from onesided.model.blend import NO_BLEND, Blend, blended_means
from onesided.model.row_space import RowSpace
from onesided.pairs.column_sums import column_sums, largest_value
from onesided.pairs.lookup import some_columns
from onesided.pairs.moments import PairMoments, hajek_at
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike

HELD_OUT = 5  # one row in so many
KAPPAS = np.append(np.geomspace(1.0, 1e5, 16), np.inf)
MEAN_KAPPAS = (np.inf, 100.0, 10.0, 1.0)
FEWEST_ROWS = 30  # held out: below, their standard error tells little
PRODUCTS_OF_A_ROW = 256
SCORED_PRODUCTS = 1 << 21
MOST_PRODUCTS = 1 << 29  # of two entries of a row: beyond, measured pairs would not fit in memory, and none are blended


def choose_blend(
    panel: PanelLike,
    fit: Callable[[PanelLike], RowSpace],
    rng: int | np.random.Generator = 0,
    held_out: Array | None = None,
) -> Blend:
    """κ and κ' for a panel whose model is fitted by ``fit``; infinite where measurements do not help.

    ``held_out`` says of every row whether it is; a fifth drawn at random where not given.

    >>> from onesided import synthetic
    >>> from onesided.fitting.moment_solution import moment_solution
    >>> from onesided.fitting.setting import Setting
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(3000, 20, 6, rng=0), 8, rng=1)
    >>> setting = Setting(1, center="none")  # which misses much
    >>> choose_blend(panel, lambda rows: moment_solution(rows, setting).row_space).pairs < 1000
    True
    """
    if np.sum(panel.row_counts.astype(np.float64) ** 2) > MOST_PRODUCTS:
        return NO_BLEND
    rng = np.random.default_rng(rng)
    if held_out is None:
        held_out = rng.permutation(panel.n_rows) % HELD_OUT == 0
    weights = np.where(held_out, 0.0, panel.row_weights)
    if not np.any(weights[panel.row_counts > 1]):
        return NO_BLEND
    kept, columns = some_columns(panel)
    products = _products(kept.to_panel(), np.flatnonzero(held_out & (panel.row_weights > 0)), rng)
    if len(np.unique(products.rows)) < FEWEST_ROWS:
        return NO_BLEND
    found = fit(panel.with_row_weights(weights))
    trained = kept.with_row_weights(weights)
    scale = (largest_value(panel) or 1.0) * found.units[columns]
    own = column_sums(trained, scale=engine_for(trained).array(scale))
    seen, sums = host(own.counts), host(own.sums)
    means = sums / np.where(seen > 0, seen, 1.0)
    centred = np.any(found.mean)
    measured, counts = hajek_at(PairMoments.from_panel(trained), products.i, products.j)
    loadings, (i, j) = found.loadings[columns] / scale[:, None], (products.i, products.j)
    return _best(
        products._replace(values=products.values / scale[i] / scale[j]),
        (measured / scale[i] / scale[j], counts),
        np.vecdot(loadings[i], loadings[j]),
        {
            kappa: blended_means(found.mean[columns] / scale, means, seen, kappa)
            for kappa in (MEAN_KAPPAS if centred else MEAN_KAPPAS[:1])
        },
    )


class _Products(NamedTuple):
    """Products of two entries of a row, each with the weight it has in the sum over all of them."""

    rows: Array
    i: Array
    j: Array
    values: Array
    weights: Array


def _products(panel: Panel, rows: Array, rng: np.random.Generator) -> _Products:
    """All products of rows that have few, and as many drawn with replacement of rows that have more."""
    length = panel.row_counts[rows].astype(np.int64)
    number = length * (length - 1) // 2
    most = max(1, min(PRODUCTS_OF_A_ROW, SCORED_PRODUCTS // max(1, int(np.count_nonzero(number)))))
    drawn = np.minimum(number, most)
    row = np.repeat(np.arange(len(rows)), drawn)
    which = np.arange(len(row)) - np.repeat(np.cumsum(drawn) - drawn, drawn)
    many = number[row] > most
    which[many] = rng.integers(number[row[many]])
    second = ((1 + np.sqrt(1 + 8 * which.astype(np.float64))) / 2).astype(np.int64)  # of the pairs 01, 02, 12, 03, ...
    first = which - second * (second - 1) // 2
    at = [panel.indptr[rows][row] + one for one in (first, second)]
    values = panel.values[at[0]].astype(np.float64) * panel.values[at[1]]
    weights = (number / np.maximum(drawn, 1) * panel.row_weights[rows])[row]
    return _Products(row, panel.columns[at[0]], panel.columns[at[1]], values, weights)


def _best(products: _Products, measured: tuple[Array, Array], common: Array, means: dict[float, Array]) -> Blend:
    """The blend of the largest gain, or none where that is within two standard errors of nothing."""
    target, counts = measured
    i, j, n_rows = products.i, products.j, int(products.rows[-1]) + 1
    alone = _squared(products, means[np.inf][i] * means[np.inf][j] + common)
    best, blend = 0.0, NO_BLEND
    for mean_kappa, mean in means.items():
        model = mean[i] * mean[j] + common
        for kappa in KAPPAS:
            value = model + (target - model) * (counts / (counts + kappa))
            gains = np.bincount(products.rows, alone - _squared(products, value), n_rows)
            total, error = float(gains.sum()), float(np.sqrt(n_rows * gains.var()))
            if total > best and total > 2 * error:
                best, blend = total, Blend(float(kappa), float(mean_kappa))
    return blend


def _squared(products: _Products, value: Array) -> Array:
    return np.asarray(products.weights * (products.values - value) ** 2)
