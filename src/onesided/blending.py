"""How far to trust a measurement beside the model: κ of the blend, from held-out rows.

    B_ij(κ) = (N_ij T̂_ij + κ L_ij) / (N_ij + κ)

A fifth of the rows is held out. L is fitted and T̂, N are measured on the others; then B predicts the products p of two
entries of a held-out row, and the gain of κ over the model alone is the sum over these products of

    (p − L_ij)² − (p − B_ij)².

The κ of the largest gain is taken if that gain exceeds twice its standard error, which is estimated from ten groups of
held-out rows; otherwise κ is infinite: the model stands alone. Only sums and counts per pair are needed. Where rows
hold more than 2²³ products, the pairs among some columns stand for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from onesided.measurement import some_columns
from onesided.moments import PairMoments, hajek
from onesided.panel import Panel
from onesided.row_space import RowSpace

Array = npt.NDArray[Any]

HELD_OUT = 5  # one row in so many
GROUPS = 10
KAPPAS = np.geomspace(1.0, 1e5, 26)
MOST_PRODUCTS = 1 << 29  # of two entries of a row: beyond, measured pairs would not fit in memory, and none are blended


def choose_kappa(panel: Panel, fit: Callable[[Panel], RowSpace], rng: int | np.random.Generator = 0) -> float:
    """κ for a panel whose model is fitted by ``fit``; infinite where measurements do not help.

    >>> from onesided import synthetic
    >>> from onesided.row_space import complete
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(3000, 20, 6, rng=0), 8, rng=1)
    >>> choose_kappa(panel, lambda rows: complete(rows, rank=1, center="none")) < 1000  # a model that misses much
    True
    """
    if np.sum(panel.row_counts.astype(np.float64) ** 2) > MOST_PRODUCTS:
        return np.inf
    groups = np.random.default_rng(rng).permutation(panel.n_rows) % (HELD_OUT * GROUPS)  # those below GROUPS: held out
    weights = np.where(groups < GROUPS, 0.0, panel.row_weights)
    if not np.any(weights[panel.row_counts > 1]):
        return np.inf
    found = fit(panel.with_row_weights(weights))
    kept, columns = some_columns(panel)
    factor = np.column_stack([found.mean, found.loadings])[columns]
    measured = PairMoments.from_panel(kept.with_row_weights(weights))
    gains = np.array(
        [
            _gains(
                measured, PairMoments.from_panel(kept.with_row_weights(panel.row_weights * (groups == group))), factor
            )
            for group in range(GROUPS)
        ]
    )
    gains /= np.max(np.abs(gains)) or 1.0  # their unit is the fourth power of the data's
    total, error = gains.sum(axis=0), np.sqrt(GROUPS * gains.var(axis=0, ddof=1))
    best = int(np.argmax(total))
    return float(KAPPAS[best]) if total[best] > 2 * error[best] else np.inf


def _gains(measured: PairMoments, held_out: PairMoments, factor: Array) -> Array:
    """The gain of each κ on the held-out products, from their sums and counts: Σ N' (L² − B²) − 2 S' (L − B)."""
    i, j = held_out.pairs()
    off = i != j
    i, j, sums, counts = i[off], j[off], held_out.sums[off], held_out.counts[off]
    known = measured.pairs()[0] * measured.n_columns + measured.columns
    at = np.searchsorted(known, i * measured.n_columns + j)
    at = np.minimum(at, max(len(known) - 1, 0))
    seen = known[at] == i * measured.n_columns + j if len(known) else np.zeros(len(i), bool)
    i, j, sums, counts, at = i[seen], j[seen], sums[seen], counts[seen], at[seen]
    low_rank = np.einsum("ka,ka->k", factor[i], factor[j])
    departure, rows = hajek(measured)[at] - low_rank, measured.counts[at]
    gains = np.empty(len(KAPPAS))
    for k, kappa in enumerate(KAPPAS):
        blend = low_rank + departure * rows / (rows + kappa)
        gains[k] = np.sum(counts * (low_rank**2 - blend**2) - 2 * sums * (low_rank - blend))
    return gains
